// tandem watch: shows runs while they train, in a browser or in the terminal. Only reads the runs' files.
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "commands.h"
#include "core/error.h"
#include "core/log.h"
#include "core/signals.h"
#include "core/stopwatch.h"
#include "dist/message.h"
#include "report/forms.h"
#include "report/watch_access.h"
#include "report/watch_server.h"
#include "report/watch_token.h"
#include "report/watched_runs.h"
#include "train/read_report.h"

namespace tandem::cli {

namespace {

constexpr int kPort = 7117;  // tried first
constexpr const char* kTokenVariable = "TANDEM_WATCH_TOKEN";

struct WatchArguments {
  std::vector<std::string> paths;
  std::string address = "127.0.0.1", token, token_file;
  bool no_token = false;
  int port = 0;
  double price_per_hour = 0;
  bool text = false;
};

// What clients must send; empty: nothing.
std::string token_of(const WatchArguments& arguments) {
  const bool this_machine = report::is_this_machine(arguments.address);
  require(this_machine || !arguments.no_token, "--no-token would let whoever reaches {} read the runs: leave it out",
          arguments.address);
  const char* variable = std::getenv(kTokenVariable);
  if (arguments.no_token) {
    return "";
  }
  if (arguments.token.empty() && arguments.token_file.empty() && variable == nullptr) {
    return this_machine && !report::is_shared_machine(getuid()) ? "" : dist::random_token();
  }
  std::string token = arguments.token, name = "--token";
  if (!arguments.token_file.empty()) {
    token = report::read_token(arguments.token_file);
    name = "the token in " + arguments.token_file;
  } else if (token.empty()) {
    token = variable;
    name = kTokenVariable;
  }
  report::require_sound_token(token, name);
  return token;
}

// Calls body(whether there is anything new) about every second until it returns false or a signal asks to stop.
template <class Body>
void every_second(report::WatchedRuns& runs, const Body& body) {
  const Signals signals;
  const Stopwatch clock;
  while (signals.stop_signal() == 0 && body(runs.update(clock.seconds()))) {
    for (int i = 0; i < 20 && signals.stop_signal() == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

// Overwrites the screen line by line, so that nothing flickers.
void show_screen(std::span<const report::RunReport> reports) {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
  std::string screen = "\x1b[H";
  for (const char c : report::watch_screen(reports, known ? size.ws_col : 80, known ? size.ws_row - 1 : 23)) {
    screen += c == '\n' ? std::string("\x1b[K\n") : std::string(1, c);
  }
  print(screen + "\x1b[J");
}

// Prints until every run is over.
void watch_text(report::WatchedRuns& runs) {
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  std::map<std::string, std::string> said;
  bool told = false;  // whether it was reported that there is no run
  if (terminal) {
    print("\x1b[2J");
  }
  every_second(runs, [&](bool changed) {
    const std::vector<report::RunReport> reports = runs.reports();
    if (reports.empty() && !std::exchange(told, true)) {
      log::info("no run there yet; waiting for one (Ctrl-C ends)");
    }
    if (terminal) {
      show_screen(reports);
    } else if (changed) {
      for (const report::RunReport& report : reports) {
        const std::string line = report::watch_line(report);
        if (said[report.run.name] != line) {
          print(line + "\n");
          said[report.run.name] = line;
        }
      }
    }
    return !report::all_ended(reports);
  });
}

std::unique_ptr<report::WatchServer> make_server(const WatchArguments& arguments) {
  const report::WatchServerOptions options{
      .address = arguments.address, .port = arguments.port, .token = token_of(arguments)};
  if (arguments.port == 0) {
    report::WatchServerOptions preferred = options;
    preferred.port = kPort;
    try {
      return std::make_unique<report::WatchServer>(preferred);
    } catch (const Error&) {  // the port is taken: try another
    }
  }
  return std::make_unique<report::WatchServer>(options);
}

void watch_page(report::WatchedRuns& runs, const WatchArguments& arguments) {
  const std::unique_ptr<report::WatchServer> server = make_server(arguments);
  log::info("watching at {} (Ctrl-C ends it)", server->url());
  every_second(runs, [&](bool changed) {
    if (changed) {
      const std::vector<report::RunReport> reports = runs.reports();
      server->publish(report::page_data(reports), report::to_prometheus(reports));
    }
    return true;
  });
}

void run_watch(const WatchArguments& arguments) {
  require(arguments.price_per_hour >= 0, "--price-per-hour is {}: give 0 or more", arguments.price_per_hour);
  require(arguments.port >= 0 && arguments.port < 65536, "--port is {}: give 1 to 65535, or 0 for any", arguments.port);
  report::WatchedRuns runs({arguments.paths.begin(), arguments.paths.end()}, [&](const std::filesystem::path& run) {
    return train::read_report(run, {.data = {}, .price_per_hour = arguments.price_per_hour});
  });
  if (arguments.text) {
    watch_text(runs);
  } else {
    watch_page(runs, arguments);
  }
}

}  // namespace

void add_watch(Program& program) {
  auto arguments = std::make_shared<WatchArguments>();  // shared with the action, which runs after this returns
  program
      .add("watch",
           "Shows runs while they train, in a browser or with --text in the terminal. Reads files only, so it never "
           "disturbs a trainer and works after the run and on a copy. /metrics is for Prometheus.")
      .option("run", arguments->paths, "Run directories, or directories that hold runs")
      .required()
      .flag("--text", arguments->text, "In the terminal, until the runs are over; plain lines in a pipe")
      .option("--port", arguments->port, "Port of the page; default: 7117, or a free one")
      .option("--address", arguments->address, "Address of the page; any other than loopback lets other machines in")
      .option("--token-file", arguments->token_file,
              "File with the secret that every client must send, 16 characters or more; or set TANDEM_WATCH_TOKEN. If "
              "none is given one is made, unless nobody else uses this machine")
      .option("--token", arguments->token, "The same as an argument, which `ps` shows to others")
      .excludes({"--token-file"})
      .flag("--no-token", arguments->no_token, "No secret, on this machine's own address")
      .excludes({"--token-file", "--token"})
      .option("--price-per-hour", arguments->price_per_hour, "Price of an hour of all hosts together")
      .example("tandem watch runs/en-de")
      .run([arguments] { run_watch(*arguments); });
}

}  // namespace tandem::cli
