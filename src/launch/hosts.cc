#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/file.h"
#include "core/parse.h"
#include "dist/socket.h"
#include "launch/launch.h"

namespace tandem::launch {
namespace {

constexpr int kMostWorkers = 1024;  // workers on a host

Host parse_host(const std::string& text, const std::string& all) {
  // [2001:db8::5]:2 is an address that contains colons.
  const size_t bracket = text.starts_with('[') ? text.find(']') : std::string::npos;
  const size_t colon = bracket == std::string::npos ? text.rfind(':') : text.find(':', bracket);
  Host host{bracket == std::string::npos ? text.substr(0, colon) : text.substr(1, bracket - 1), 1};
  require(bracket != std::string::npos || text.find(':') == colon,
          "'{}' in --hosts has several colons: put an IPv6 address into brackets, as in [2001:db8::5]:2", text);
  if (colon != std::string::npos) {
    host.workers = parse_number<int>(std::string_view(text).substr(colon + 1)).value_or(0);
    require(host.workers >= 1 && host.workers <= kMostWorkers,
            "'{}' in --hosts is malformed: give host or host:workers, as in a:2,b:2", text);
  }
  require(!host.name.empty() && host.name.front() != '-',
          "'{}' in --hosts '{}' is not a host: give hosts as in a:2,b:2", text, all);
  return host;
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& text) {
  std::vector<Host> hosts;
  for (const std::string& part : split(text + ',', ',')) {  // with a comma at the end an empty last part counts
    const Host host = parse_host(part, text);
    require(std::none_of(hosts.begin(), hosts.end(), [&](const Host& other) { return other.name == host.name; }),
            "host {} is named twice in --hosts: give all its workers at once, as in {}:2", host.name, host.name);
    hosts.push_back(host);
  }
  return hosts;
}

bool is_this_host(const std::string& name) {
  const std::string full = host_name();
  return dist::is_loopback(name) || name == full || name == full.substr(0, full.find('.'));
}

int count_workers(const std::vector<Host>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int count, const Host& host) { return count + host.workers; });
}

std::vector<std::string> split_command(const std::string& command) {
  std::vector<std::string> words;
  bool inside = false;
  char quote = 0;
  for (size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (quote == 0 && (c == ' ' || c == '\t')) {
      inside = false;
      continue;
    }
    if (!inside) {
      words.emplace_back();
      inside = true;
    }
    if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote != 0 ? 0 : c;
    } else if (c == '\\' && quote != '\'' && i + 1 < command.size()) {
      words.back() += command[++i];
    } else {
      words.back() += c;
    }
  }
  require(quote == 0, "a quote in '{}' is not closed", command);
  return words;
}

std::string shell_quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) {
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return quoted + "'";
}

}  // namespace tandem::launch
