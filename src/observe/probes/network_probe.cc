#include <array>
#include <cstdint>
#include <map>
#include <set>

#include "observe/probes/probe.h"

namespace tandem::observe {

namespace {

constexpr size_t kMostInterfaces = 16;  // hosts of containers have hundreds
constexpr size_t kMostName = 64;        // bytes; the kernel's limit is 15

// Columns of /proc/net/dev behind the name.
struct Column {
  const char* name;
  size_t place;
};
constexpr Column kColumns[] = {{"received_bytes", 0}, {"received_packets", 1}, {"received_dropped", 3},
                               {"sent_bytes", 8},     {"sent_packets", 9},     {"sent_dropped", 11}};
constexpr size_t kPlaces = 12;

using Counters = std::array<Counter, std::size(kColumns)>;
using Values = std::array<std::optional<double>, kPlaces>;

class NetworkProbe final : public Probe {
 public:
  NetworkProbe(const std::filesystem::path& root, std::string interface)
      : root_(root), interface_(std::move(interface)) {}

  void sample(Record& record, double) override {
    std::map<std::string, Values, std::less<>> found = devices();
    if (const auto own = found.find(interface_); own != found.end()) {
      add(record, "network_", interface_, own->second, own_);
    }
    const std::set<std::string, std::less<>> addressed = with_address();
    std::map<std::string, Counters> seen;
    for (const auto& [name, values] : found) {
      if (seen.size() < kMostInterfaces && addressed.contains(name) && is_up(name)) {
        Counters& counters = seen[name] = others_[name];
        add(record, "net." + name + ".", name, values, counters);
      }
    }
    others_ = std::move(seen);  // what went away is forgotten
  }

 private:
  std::map<std::string, Values, std::less<>> devices() const {
    std::map<std::string, Values, std::less<>> found;
    const std::string content = read_pseudo_file(root_ / "proc/net/dev");
    std::string_view text = content;
    while (!text.empty()) {
      std::string_view line = next_line(text);
      const size_t colon = line.find(':');
      if (colon == std::string_view::npos) {
        continue;  // the two lines of headings
      }
      std::string_view head = line.substr(0, colon);
      const std::string_view name = next_word(head);
      line.remove_prefix(colon + 1);
      if (name.empty() || name.size() > kMostName || name.find('/') != std::string_view::npos || name == "..") {
        continue;  // the name becomes part of a path
      }
      Values values;
      for (std::optional<double>& value : values) {
        value = to_number(next_word(line));
      }
      found.emplace(name, values);
    }
    return found;
  }

  // IPv4 as far as there is a route, IPv6.
  std::set<std::string, std::less<>> with_address() const {
    std::set<std::string, std::less<>> names;
    const std::string routes = read_pseudo_file(root_ / "proc/net/route");
    std::string_view text = routes;
    for (next_line(text); !text.empty();) {
      std::string_view line = next_line(text);
      names.emplace(next_word(line));
    }
    const std::string addresses = read_pseudo_file(root_ / "proc/net/if_inet6");
    text = addresses;
    while (!text.empty()) {
      std::string_view line = next_line(text), word;
      while (!line.empty()) {
        if (const std::string_view next = next_word(line); !next.empty()) {
          word = next;  // the name is the last one
        }
      }
      names.emplace(word);
    }
    return names;
  }

  std::string attribute(const std::string& name, const char* what) const {
    const std::string content = read_pseudo_file(root_ / "sys/class/net" / name / what);
    std::string_view text = content;
    return std::string(next_word(text));
  }

  // Loopback and tunnels do not know whether they are.
  bool is_up(const std::string& name) const {
    const std::string state = attribute(name, "operstate");
    return state == "up" || state == "unknown";
  }

  void add(Record& record, const std::string& prefix, const std::string& name, const Values& values,
           Counters& counters) const {
    for (size_t i = 0; i < std::size(kColumns); ++i) {
      if (const std::optional<double> value = values[kColumns[i].place]) {
        add_known(record, prefix + kColumns[i].name, counters[i].since(*value));
      }
    }
    // Mbit/s; -1 or unreadable where the driver does not know.
    const std::optional<double> speed = to_number(attribute(name, "speed"));
    if (speed && *speed > 0 && *speed < UINT32_MAX) {
      record.add(prefix + "link_bits_per_second", *speed * 1e6);
    }
  }

  std::filesystem::path root_;
  std::string interface_;
  Counters own_;
  std::map<std::string, Counters> others_;
};

}  // namespace

std::unique_ptr<Probe> make_network_probe(const std::filesystem::path& root, const std::string& interface) {
  return std::make_unique<NetworkProbe>(root, interface);
}

}  // namespace tandem::observe
