#include "observe/probes/probe.h"

namespace tandem::observe {

namespace {

constexpr int kColumns = 8;  // user nice system idle iowait irq softirq steal; guest time is within user
constexpr int kIdle = 3, kWaiting = 4;

class CpuProbe final : public Probe {
 public:
  explicit CpuProbe(const std::filesystem::path& root) : stat_(root / "proc/stat"), load_(root / "proc/loadavg") {}

  void sample(Record& record, double) override {
    const std::string content = read_pseudo_file(stat_);
    std::string_view text = content;
    std::string_view line = next_line(text);
    if (next_word(line) == "cpu") {
      busy(record, line);
    }
    double cores = 0;
    for (line = next_line(text); line.starts_with("cpu"); line = next_line(text)) {
      ++cores;
    }
    if (cores > 0) {
      record.add("cpu_cores", cores);
    }
    const std::string load = read_pseudo_file(load_);
    std::string_view words = load;
    add_known(record, "load", to_number(next_word(words)));
  }

 private:
  // Ticks of all cores together.
  void busy(Record& record, std::string_view line) {
    double total = 0, idle = 0;
    for (int column = 0; column < kColumns; ++column) {
      const std::string_view word = next_word(line);
      const std::optional<double> ticks = word.empty() ? 0 : to_number(word);  // old kernels have fewer columns
      if (!ticks) {
        return;
      }
      total += *ticks;
      idle += column == kIdle || column == kWaiting ? *ticks : 0;
    }
    const std::optional<double> all = total_.since(total), unused = idle_.since(idle);
    if (all && unused && *all > 0 && *unused <= *all) {
      record.add("cpu_busy", 1 - *unused / *all);
    }
  }

  std::filesystem::path stat_, load_;
  Counter total_, idle_;
};

}  // namespace

std::unique_ptr<Probe> make_cpu_probe(const std::filesystem::path& root) { return std::make_unique<CpuProbe>(root); }

}  // namespace tandem::observe
