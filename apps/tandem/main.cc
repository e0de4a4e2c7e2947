// tandem: chooses the subcommand, runs it, and turns an error into one sentence on standard error.
#include <fcntl.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "commands.h"
#include "core/error.h"
#include "core/log.h"

namespace {

// Standard input, output or error that the caller has closed would be the next file that is opened, and messages would
// end in a corpus. Reading from closed input and writing to closed output stay errors.
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
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows beyond its limit is an error, not the end
  Program program("tandem", "Trains translation models and tells the truth about the run.", TANDEM_VERSION);
  add_demo(program);
  add_prepare(program);
  add_train(program);
  add_launch(program);
  add_preflight(program);
  add_translate(program);
  add_evaluate(program);
  add_score(program);
  add_inspect(program);
  add_report(program);
  add_watch(program);
  add_average(program);
  add_bench(program);
  add_tune(program);
  add_agent(program);
  add_preflight_worker(program);
  try {
    const int code = program.run(argc, argv);
    tandem::require(std::fflush(stdout) == 0 && std::ferror(stdout) == 0,
                    "not all could be written to standard output");
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
