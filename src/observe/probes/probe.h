// Sources of measurements about this host, this process and its GPU, from /proc, /sys and NVML.
//
// Each adds its fields to a record of kind "probe" (docs/formats.md). What cannot be read or makes no sense is left
// out: a probe never fails and never guesses. Counters are given as what came in since the last sample.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "observe/metrics.h"

namespace tandem::observe {

class Probe {
 public:
  virtual ~Probe() = default;
  // `seconds` since the last sample; the first one only has what is no difference.
  virtual void sample(Record& record, double seconds) = 0;
};

// `root` has proc and sys below it: "/", but for tests.
std::unique_ptr<Probe> make_cpu_probe(const std::filesystem::path& root);
std::unique_ptr<Probe> make_memory_probe(const std::filesystem::path& root);
std::unique_ptr<Probe> make_process_probe(const std::filesystem::path& root);
// Of the filesystem that `directory` lies on.
std::unique_ptr<Probe> make_disk_probe(const std::filesystem::path& root, const std::filesystem::path& directory);
// Every interface that is up and has an address as net.<name>.*, at most 16, and the run's own also as network_*; an
// empty `interface`: the run uses none.
std::unique_ptr<Probe> make_network_probe(const std::filesystem::path& root, const std::string& interface);
// `gpu`: PCI bus id, UUID or number. Null where NVML or that GPU is not there. `library`: NVML, for dlopen.
std::unique_ptr<Probe> make_gpu_probe(const std::string& gpu, const std::string& library);

// A counter that should only grow.
class Counter {
 public:
  // What was added since the last call; nothing at the first one, and when it went back (reset, overflow).
  std::optional<double> since(double now) {
    const std::optional<double> before = std::exchange(last_, now);
    return before && now >= *before ? std::optional(now - *before) : std::nullopt;
  }

 private:
  std::optional<double> last_;
};

// Adds the field where there is a value.
void add_known(Record& record, const std::string& name, std::optional<double> value);

// The file's first 256 KiB; empty where it cannot be read.
std::string read_pseudo_file(const std::filesystem::path& path);

// Takes the next line (without its end) or the next word off the front of `text`; empty at its end.
std::string_view next_line(std::string_view& text);
std::string_view next_word(std::string_view& text);

// Nothing where the whole word is no finite number of at least 0.
std::optional<double> to_number(std::string_view word);

}  // namespace tandem::observe
