#include "observe/probes/probe.h"

namespace tandem::observe {

namespace {

class MemoryProbe final : public Probe {
 public:
  explicit MemoryProbe(const std::filesystem::path& root) : path_(root / "proc/meminfo") {}

  void sample(Record& record, double) override {
    const std::string content = read_pseudo_file(path_);
    std::string_view text = content;
    std::optional<double> total, available;  // kB
    while (!text.empty() && !(total && available)) {
      std::string_view line = next_line(text);
      const std::string_view name = next_word(line);
      if (name == "MemTotal:") {
        total = to_number(next_word(line));
      } else if (name == "MemAvailable:") {
        available = to_number(next_word(line));
      }
    }
    if (total && available && *available <= *total) {
      record.add("memory_used_bytes", 1024 * (*total - *available));
      record.add("memory_available_bytes", 1024 * *available);
      record.add("memory_total_bytes", 1024 * *total);
    }
  }

 private:
  std::filesystem::path path_;
};

}  // namespace

std::unique_ptr<Probe> make_memory_probe(const std::filesystem::path& root) {
  return std::make_unique<MemoryProbe>(root);
}

}  // namespace tandem::observe
