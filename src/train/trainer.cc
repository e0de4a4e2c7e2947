#include "train/trainer.h"

#include "core/log.h"
#include "train/setup.h"
#include "train/training.h"

namespace tandem {

TrainOutcome train_model(TrainConfig config, bool start_over, double check_share) {
  Prepared data = Prepared::open(config.data);
  complete_config(config, data);
  TeamRun team_run(config, data, start_over);
  log::set_quiet(!team_run.first());
  log::open_file(team_run.first() ? team_run.directory().log() : team_run.directory().rank_log(team_run.rank()));
  TrainOutcome outcome;
  try {
    Training training(config, std::move(data), team_run, check_share);
    training.begin();
    outcome = training.run();
  } catch (const std::exception& error) {
    if (team_run.size() > 1) {
      team_run.team().stop(error.what());  // the others hear why
    }
    throw;
  }
  team_run.leave();
  log::close_file();
  return outcome;
}

}  // namespace tandem
