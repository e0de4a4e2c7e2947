// Probes of the host and this process that read /proc and /sys.
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "observe/probes/host_probes.h"

namespace tandem::observe {

namespace fs = std::filesystem;

namespace {

using Number = std::optional<double>;

// Adds the field if there is a value.
void add_known(Record& record, const std::string& name, Number value) {
  if (value) {
    record.add(name, *value);
  }
}

// Nothing unless the whole word is a finite number of at least 0.
Number to_number(std::string_view word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool good = error == std::errc() && end == word.data() + word.size() && std::isfinite(value) && value >= 0;
  return good ? Number(value) : std::nullopt;
}

// The next word; empty at the end.
std::string next_word(std::istream& in) {
  std::string word;
  in >> word;
  return word;
}

template <size_t count>
std::array<Number, count> next_numbers(std::istream& in) {
  std::array<Number, count> numbers;
  for (Number& number : numbers) {
    number = to_number(next_word(in));
  }
  return numbers;
}

// The number after `name` in the first line that begins with it.
Number number_after(const std::string& name, const fs::path& path) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name)) {
      std::istringstream rest(line.substr(name.size()));
      return to_number(next_word(rest));
    }
  }
  return std::nullopt;
}

// ---- CPU

// Ticks of all cores together, from the line "cpu" of /proc/stat.
struct CpuTicks {
  Counter total, idle;

  Number busy(std::istream& line) {
    constexpr int kColumns = 8;  // user nice system idle iowait irq softirq steal; guest time is within user
    constexpr int kIdle = 3, kWaiting = 4;
    double all = 0, unused = 0;
    for (int column = 0; column < kColumns; ++column) {
      const std::string word = next_word(line);
      const Number ticks = word.empty() ? 0 : to_number(word);  // old kernels have fewer columns
      if (!ticks) {
        return std::nullopt;
      }
      all += *ticks;
      unused += column == kIdle || column == kWaiting ? *ticks : 0;
    }
    const Number more = total.since(all), more_unused = idle.since(unused);
    return more && more_unused && *more > 0 && *more_unused <= *more ? Number(1 - *more_unused / *more) : std::nullopt;
  }
};

// ---- disk

// Bytes that all processes wrote to a disk. Nothing for a filesystem over several disks, which has no line of its own.
Number bytes_written(const fs::path& stats, double wanted_major, double wanted_minor) {
  constexpr double kSector = 512;        // bytes, whatever the disk's own sector size
  constexpr size_t kSectorsWritten = 7;  // column in /proc/diskstats, counted from 1 after the name
  std::ifstream in(stats);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    const auto [found_major, found_minor] = next_numbers<2>(words);
    if (found_major == wanted_major && found_minor == wanted_minor) {
      next_word(words);  // its name
      const Number sectors = next_numbers<kSectorsWritten>(words).back();
      return sectors ? Number(*sectors * kSector) : std::nullopt;
    }
  }
  return std::nullopt;
}

// ---- network

constexpr size_t kMostInterfaces = 16;  // container hosts have hundreds
constexpr size_t kMostName = 64;        // bytes; the kernel's limit is 15

// Columns of /proc/net/dev after the name.
struct Column {
  const char* name;
  size_t place;
};
constexpr Column kColumns[] = {{"received_bytes", 0}, {"received_packets", 1}, {"received_dropped", 3},
                               {"sent_bytes", 8},     {"sent_packets", 9},     {"sent_dropped", 11}};
constexpr size_t kPlaces = 12;

class NetworkProbe {
 public:
  NetworkProbe(fs::path root, std::string interface) : root_(std::move(root)), interface_(std::move(interface)) {}

  void operator()(Record& record, double) {
    const std::map<std::string, Values> found = devices();
    if (const auto own = found.find(interface_); own != found.end()) {
      add(record, "network_", interface_, own->second, own_);
    }
    const std::set<std::string> addressed = with_address();
    std::map<std::string, Counters> seen;
    for (const auto& [name, values] : found) {
      if (seen.size() < kMostInterfaces && addressed.contains(name) && is_up(name)) {
        Counters& counters = seen[name] = others_[name];
        add(record, "net." + name + ".", name, values, counters);
      }
    }
    others_ = std::move(seen);  // forgets interfaces that went away
  }

 private:
  using Counters = std::array<Counter, std::size(kColumns)>;
  using Values = std::array<Number, kPlaces>;

  std::map<std::string, Values> devices() const {
    std::map<std::string, Values> found;
    std::ifstream in(root_ / "proc/net/dev");
    for (std::string line; std::getline(in, line);) {
      const size_t colon = line.find(':');
      if (colon == std::string::npos) {
        continue;  // the two lines of headings
      }
      std::istringstream head(line.substr(0, colon)), columns(line.substr(colon + 1));
      const std::string name = next_word(head);
      if (name.empty() || name.size() > kMostName || name.find('/') != std::string::npos || name == "..") {
        continue;  // the name becomes part of a path
      }
      found.emplace(name, next_numbers<kPlaces>(columns));
    }
    return found;
  }

  // Names of interfaces with an address: IPv4 ones that have a route, and IPv6 ones.
  std::set<std::string> with_address() const {
    std::set<std::string> names;
    std::ifstream routes(root_ / "proc/net/route"), addresses(root_ / "proc/net/if_inet6");
    for (std::string line; std::getline(routes, line);) {  // the first line has headings, not a name
      names.insert(line.substr(0, line.find_first_of(" \t")));
    }
    for (std::string line; std::getline(addresses, line);) {
      names.insert(line.substr(line.find_last_of(" \t") + 1));
    }
    return names;
  }

  std::string attribute(const std::string& name, const char* what) const {
    std::ifstream in(root_ / "sys/class/net" / name / what);
    return next_word(in);
  }

  // Loopback and tunnels report "unknown".
  bool is_up(const std::string& name) const {
    const std::string state = attribute(name, "operstate");
    return state == "up" || state == "unknown";
  }

  void add(Record& record, const std::string& prefix, const std::string& name, const Values& values,
           Counters& counters) const {
    for (size_t i = 0; i < std::size(kColumns); ++i) {
      if (const Number value = values[kColumns[i].place]) {
        add_known(record, prefix + kColumns[i].name, counters[i].since(*value));
      }
    }
    // Mbit/s; -1 or unreadable if the driver does not know.
    const Number speed = to_number(attribute(name, "speed"));
    if (speed && *speed > 0 && *speed < UINT32_MAX) {
      record.add(prefix + "link_bits_per_second", *speed * 1e6);
    }
  }

  fs::path root_;
  std::string interface_;
  Counters own_;
  std::map<std::string, Counters> others_;
};

}  // namespace

Probe make_cpu_probe(const fs::path& root) {
  return [stat = root / "proc/stat", load = root / "proc/loadavg", ticks = CpuTicks()](Record& record, double) mutable {
    std::ifstream in(stat), loads(load);
    std::string line;
    std::getline(in, line);
    std::istringstream words(line);
    if (next_word(words) == "cpu") {
      add_known(record, "cpu_busy", ticks.busy(words));
    }
    double cores = 0;
    while (std::getline(in, line) && line.starts_with("cpu")) {
      ++cores;
    }
    if (cores > 0) {
      record.add("cpu_cores", cores);
    }
    add_known(record, "load", to_number(next_word(loads)));
  };
}

Probe make_memory_probe(const fs::path& root) {
  return [path = root / "proc/meminfo"](Record& record, double) {
    const Number total = number_after("MemTotal:", path), available = number_after("MemAvailable:", path);  // kB
    if (total && available && *available <= *total) {
      record.add("memory_used_bytes", 1024 * (*total - *available));
      record.add("memory_available_bytes", 1024 * *available);
      record.add("memory_total_bytes", 1024 * *total);
    }
  };
}

Probe make_process_probe(const fs::path& root) {
  return [stat = root / "proc/self/stat", io = root / "proc/self/io", cpu = Counter(), written = Counter()](
             Record& record, double) mutable {
    // Columns of /proc/self/stat, counted after the name in brackets.
    constexpr size_t kUserTicks = 11, kSystemTicks = 12, kThreads = 17, kPages = 21;
    std::ifstream in(stat);
    const std::string content(std::istreambuf_iterator<char>(in), {});
    if (const size_t name_end = content.rfind(')'); name_end != std::string::npos) {  // the name may hold anything
      std::istringstream words(content.substr(name_end + 1));
      const std::array<Number, kPages + 1> numbers = next_numbers<kPages + 1>(words);
      if (const Number user = numbers[kUserTicks], system = numbers[kSystemTicks]; user && system) {
        add_known(record, "process_cpu_seconds",
                  cpu.since((*user + *system) / static_cast<double>(sysconf(_SC_CLK_TCK))));
      }
      if (const Number pages = numbers[kPages]) {
        record.add("process_memory_bytes", *pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
      }
      add_known(record, "process_threads", numbers[kThreads]);
    }
    if (const Number bytes = number_after("write_bytes:", io)) {
      add_known(record, "process_written_bytes", written.since(*bytes));
    }
  };
}

Probe make_disk_probe(const fs::path& root, const fs::path& directory) {
  return [stats = root / "proc/diskstats", directory, written = Counter()](Record& record, double) mutable {
    struct statvfs space {};
    if (statvfs(directory.c_str(), &space) == 0 && space.f_blocks > 0) {
      const auto block = static_cast<double>(space.f_frsize);
      record.add("disk_free_bytes", static_cast<double>(space.f_bavail) * block);
      record.add("disk_total_bytes", static_cast<double>(space.f_blocks) * block);
    }
    struct stat status {};
    if (stat(directory.c_str(), &status) == 0) {
      if (const Number bytes = bytes_written(stats, major(status.st_dev), minor(status.st_dev))) {
        add_known(record, "disk_written_bytes", written.since(*bytes));
      }
    }
  };
}

Probe make_network_probe(const fs::path& root, const std::string& interface) { return NetworkProbe(root, interface); }

int64_t peak_memory() { return 1024 * static_cast<int64_t>(number_after("VmHWM:", "/proc/self/status").value_or(0)); }

}  // namespace tandem::observe
