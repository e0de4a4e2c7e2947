// tandem secret: prints a new secret for the ranks of a run.
#include "commands.h"
#include "core/log.h"
#include "dist/message.h"

namespace tandem::cli {

void add_secret(Program& program) {
  program.add("secret", "Prints a new random secret for workers on several hosts under srun, mpirun or torchrun.")
      .example(
          "(umask 077; tandem secret > ~/tandem-secret); export TANDEM_SECRET_FILE=~/tandem-secret\n"
          "`tandem launch` makes a secret of its own for every start.")
      .run([] { print(dist::random_token() + "\n"); });
}

}  // namespace tandem::cli
