// tandem train: trains a model with the settings of a config.
#include <memory>

#include "backend/cuda_device.h"
#include "commands.h"
#include "core/error.h"
#include "core/log.h"
#include "dist/world.h"
#include "launch/launch.h"
#include "train/group_run.h"
#include "train/trainer.h"

namespace tandem::cli {

namespace {

// Warns of GPUs that the run cannot use because of a problem, once per machine.
void warn_of_unusable_gpus(const train::TrainConfig& config) {
  const bool any_gpu = config.device == "auto" || config.device == "cuda";
  if (any_gpu && backend::gpu_count() > 0 && dist::world_from_environment().local_rank == 0) {
    for (const std::string& problem : backend::gpu_problems()) {
      log::warning("{}; it is not used", problem);
    }
  }
}

}  // namespace

void add_train(Program& program) {
  struct Options {
    std::string config;
    std::vector<std::string> overrides;
    bool start_over = false;
    double check_share = 0;
  };
  auto options = std::make_shared<Options>();  // shared with the action that runs after parsing
  program.add("train", "Trains a model; resumes if the run directory has a checkpoint.")
      .option("config", options->config, "the run's settings, a TOML file")
      .required()
      .option("settings", options->overrides, "key=value: settings that override those of the file")
      .flag("--start-over", options->start_over,
            "remove the former run from the run directory and start from the beginning")
      .option("--check-backend", options->check_share,
              "share of the steps, 0 to 1, that a GPU's run also computes on the CPU, op by op, and compares")
      .example(
          "tandem train configs/transformer-base.toml data=data/en-de run=runs/en-de stop.max_steps=20000\n"
          "Ctrl-C, SIGTERM and SIGHUP save and end within stop.grace_seconds; SIGUSR1 saves and continues.")
      .run([options] {
        const train::TrainConfig config = train::load_config(options->config, options->overrides);
        require(!config.run.empty(), "no run directory given: add run=DIR");
        require(options->check_share >= 0 && options->check_share <= 1,
                "--check-backend is a share of the steps, from 0 to 1, not {}", options->check_share);
        warn_of_unusable_gpus(config);
        if (const int workers = train::workers_of_machine(config); workers > 1) {
          log::info("{} GPUs: one worker each; device=cuda:{} uses one alone", workers, backend::usable_gpus().front());
          std::vector<std::string> command{"train", options->config};
          command.insert(command.end(), options->overrides.begin(), options->overrides.end());
          if (options->start_over) {
            command.emplace_back("--start-over");
          }
          if (options->check_share > 0) {
            command.push_back(fmt::format("--check-backend={}", options->check_share));
          }
          launch::launch_here(workers, command, std::chrono::seconds(config.stop.grace_seconds));
          return;
        }
        const train::TrainOutcome outcome = train::train_model(config, options->start_over, options->check_share);
        if (outcome.signal != 0) {
          throw Interrupted(outcome.signal,
                            fmt::format("{} at step {}; saved in {}; the same command resumes from there",
                                        outcome.reason, outcome.step, config.run));
        }
        log::info("{}; the run is in {}; translate with: tandem translate --model {}", outcome.reason, config.run,
                  config.run);
      });
}

}  // namespace tandem::cli
