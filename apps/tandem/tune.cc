// tandem tune: finds the fastest algorithms for a config's matrix products on this GPU.
#include <cstdio>
#include <memory>

#include "commands.h"
#include "core/error.h"
#include "core/file.h"
#include "data/prepared.h"
#include "train/group_run.h"
#include "train/step_bench.h"

namespace tandem::cli {

void add_tune(Program& program) {
  struct Options {
    std::string config, out = "algorithms.txt";
    std::vector<std::string> overrides;
    int workers = 0;
  };
  auto options = std::make_shared<Options>();  // shared with the action that runs after parsing
  program
      .add("tune",
           "Times the algorithms of a config's matrix products on this GPU and writes a table of the fastest, which "
           "the setting `algorithms` takes.")
      .option("config", options->config, "the run's settings, a TOML file")
      .required()
      .option("settings", options->overrides, "key=value: settings that override those of the file")
      .option("-o,--out", options->out, "the table")
      .option("--workers", options->workers,
              "number of workers that will share a step, on all hosts; 0 = all GPUs of this machine")
      .example(
          "tandem tune configs/transformer-base.toml data=data/en-de\n"
          "tandem train configs/transformer-base.toml data=data/en-de run=runs/en-de algorithms=algorithms.txt")
      .run([options] {
        require(options->workers >= 0, "--workers is {}: give 0 or more", options->workers);
        train::TrainConfig config = train::load_config(options->config, options->overrides);
        const data::Prepared data = data::Prepared::open(config.data);
        train::complete_config(config, data);
        train::StepBenchOptions bench;
        bench.profile = false;
        bench.ranks = options->workers > 0 ? options->workers : train::workers_of_machine(config);
        bench.tune = true;
        const train::StepBench tuned = train::measure_step(data.train, config, bench);
        write_file(options->out, tuned.algorithms);
        bench.tune = false;
        const train::StepBench before = train::measure_step(data.train, config, bench);
        std::printf("%s: a step%s takes %.3f ms, %.3f ms before; written to %s\n", tuned.device.c_str(),
                    bench.ranks > 1 ? fmt::format("'s share of {} workers", bench.ranks).c_str() : "",
                    tuned.seconds * 1e3, before.seconds * 1e3, options->out.c_str());
      });
}

}  // namespace tandem::cli
