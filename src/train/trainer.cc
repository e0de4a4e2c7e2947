#include "train/trainer.h"

#include <csignal>

#include "core/log.h"
#include "train/setup.h"
#include "train/training.h"

namespace tandem {

TrainOutcome train_model(TrainConfig config, bool start_over, double check_share) {
  std::signal(SIGUSR1, SIG_IGN);  // until there is something to save
  Prepared data = Prepared::open(config.data);
  complete_config(config, data);
  TeamRun team_run(config, data, start_over);
  log::set_quiet(!team_run.first());
  TrainOutcome outcome;
  bool begun = false;
  try {
    Training training(config, std::move(data), team_run, check_share);
    training.begin();
    begun = true;
    outcome = training.run();
  } catch (const std::exception& error) {
    log::close_file(fmt::format("error: {}", error.what()));
    if (team_run.size() > 1) {
      team_run.team().stop(error.what());  // the others hear why
    }
    if (!begun) {
      team_run.directory().abandon();
    }
    throw;
  }
  team_run.leave();
  log::close_file(outcome.reason);
  return outcome;
}

}  // namespace tandem
