#include <unistd.h>

#include "observe/probes/probe.h"

namespace tandem::observe {

namespace {

// Places in /proc/self/stat, counted behind the name in brackets.
constexpr int kUserTicks = 11, kSystemTicks = 12, kThreads = 17, kPages = 21;

class ProcessProbe final : public Probe {
 public:
  explicit ProcessProbe(const std::filesystem::path& root)
      : stat_(root / "proc/self/stat"), io_(root / "proc/self/io") {}

  void sample(Record& record, double) override {
    const std::string content = read_pseudo_file(stat_);
    const size_t name_end = content.rfind(')');  // the name may hold anything
    if (name_end != std::string::npos) {
      times(record, std::string_view(content).substr(name_end + 1));
    }
    const std::string io = read_pseudo_file(io_);
    std::string_view text = io;
    while (!text.empty()) {
      std::string_view line = next_line(text);
      if (next_word(line) == "write_bytes:") {
        if (const std::optional<double> bytes = to_number(next_word(line))) {
          add_known(record, "process_written_bytes", written_.since(*bytes));
        }
      }
    }
  }

 private:
  void times(Record& record, std::string_view words) {
    std::optional<double> user, system, threads, pages;
    for (int place = 0; place <= kPages; ++place) {
      const std::string_view word = next_word(words);
      if (place == kUserTicks) {
        user = to_number(word);
      } else if (place == kSystemTicks) {
        system = to_number(word);
      } else if (place == kThreads) {
        threads = to_number(word);
      } else if (place == kPages) {
        pages = to_number(word);
      }
    }
    if (user && system) {
      const double ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
      add_known(record, "process_cpu_seconds", seconds_.since((*user + *system) / ticks_per_second));
    }
    if (pages) {
      record.add("process_memory_bytes", *pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
    }
    add_known(record, "process_threads", threads);
  }

  std::filesystem::path stat_, io_;
  Counter seconds_, written_;
};

}  // namespace

std::unique_ptr<Probe> make_process_probe(const std::filesystem::path& root) {
  return std::make_unique<ProcessProbe>(root);
}

}  // namespace tandem::observe
