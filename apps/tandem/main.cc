// tandem: chooses the subcommand, runs it, and turns an error into a one-line message on standard error.
#include <fcntl.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "commands.h"
#include "core/error.h"
#include "core/log.h"

namespace {

// If the caller has closed standard input, output or error, the next file to be opened would get its descriptor, and
// messages could end up in a corpus. Reading from closed input and writing to closed output stay errors.
void occupy_standard_streams() {
  for (const int stream : {0, 1, 2}) {
    if (fcntl(stream, F_GETFD) < 0) {
      [[maybe_unused]] const int taken = open("/dev/null", stream == 1 ? O_RDONLY : O_WRONLY);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tandem::cli;
  occupy_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // writing beyond the file size limit is an error and does not end the process
  Program program("tandem", "Trains translation models and reports what was really measured.", TANDEM_VERSION);
  for (const auto add : {add_demo, add_prepare, add_train, add_launch, add_preflight, add_translate, add_evaluate,
                         add_score, add_inspect, add_report, add_watch, add_average, add_bench, add_tune, add_secret,
                         add_agent, add_preflight_worker}) {
    add(program);
  }
  try {
    const int code = program.run(argc, argv);
    tandem::require(std::fflush(stdout) == 0 && std::ferror(stdout) == 0,
                    "not everything could be written to standard output");
    return code;
  } catch (const tandem::Interrupted& interrupted) {
    tandem::log::status("");
    std::fprintf(stderr, "tandem: %s\n", interrupted.what());
    return 128 + interrupted.signal();
  } catch (const std::exception& error) {
    tandem::log::status("");
    std::fprintf(stderr, "tandem: %s\n", error.what());
    return 1;
  }
}
