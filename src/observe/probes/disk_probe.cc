#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include "observe/probes/probe.h"

namespace tandem::observe {

namespace {

constexpr double kSector = 512;     // bytes, whatever the disk's own are
constexpr int kSectorsWritten = 7;  // place in /proc/diskstats, counted behind the name

class DiskProbe final : public Probe {
 public:
  DiskProbe(const std::filesystem::path& root, std::filesystem::path directory)
      : stats_(root / "proc/diskstats"), directory_(std::move(directory)) {}

  void sample(Record& record, double) override {
    struct statvfs space {};
    if (statvfs(directory_.c_str(), &space) == 0 && space.f_blocks > 0) {
      const auto block = static_cast<double>(space.f_frsize);
      record.add("disk_free_bytes", static_cast<double>(space.f_bavail) * block);
      record.add("disk_total_bytes", static_cast<double>(space.f_blocks) * block);
    }
    struct stat status {};
    if (stat(directory_.c_str(), &status) == 0) {
      if (const std::optional<double> sectors = sectors_written(major(status.st_dev), minor(status.st_dev))) {
        add_known(record, "disk_written_bytes", written_.since(*sectors * kSector));
      }
    }
  }

 private:
  // Of all processes of the machine. A filesystem over several disks has no line of its own.
  std::optional<double> sectors_written(double wanted_major, double wanted_minor) const {
    const std::string content = read_pseudo_file(stats_);
    std::string_view text = content;
    while (!text.empty()) {
      std::string_view line = next_line(text);
      const std::optional<double> found_major = to_number(next_word(line)), found_minor = to_number(next_word(line));
      if (found_major == wanted_major && found_minor == wanted_minor) {
        next_word(line);  // its name
        for (int place = 1; place < kSectorsWritten; ++place) {
          next_word(line);
        }
        return to_number(next_word(line));
      }
    }
    return std::nullopt;
  }

  std::filesystem::path stats_, directory_;
  Counter written_;
};

}  // namespace

std::unique_ptr<Probe> make_disk_probe(const std::filesystem::path& root, const std::filesystem::path& directory) {
  return std::make_unique<DiskProbe>(root, directory);
}

}  // namespace tandem::observe
