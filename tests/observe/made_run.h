// Runs made up for tests: curves with noise, with the numbers of a small real run.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "observe/run_reader.h"

namespace tandem::testing {

struct MadeRun {
  using Curve = std::function<double(double)>;  // of the share of the run that is done, above 0 to 1

  int validations = 20;
  int64_t every = 1000;  // steps between two
  Curve nll = [](double) { return 2.0; };
  Curve train_nll = [](double) { return 1.8; };
  Curve bleu = [](double) { return 25.0; };
  double nll_noise = 0.01, bleu_noise = 0.2;  // standard deviations
  double dropout = 0.3;                       // what dropout adds to the loss of training
  Curve step_seconds = [](double) { return 0.1; };
  double step_noise = 0.02;  // relative
  double data_share = 0.01;
  double validation_seconds = 5, checkpoint_seconds = 0.5;
  bool ended = false;

  observe::RunData make(uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    observe::RunData run;
    run.name = "made";
    observe::RankMetrics m;
    double clock = 0;
    const int64_t last = validations * every, record = every / 10;
    for (int64_t step = record; step <= last; step += record) {
      const double share = static_cast<double>(step) / static_cast<double>(last);
      const bool pause = step % every == record && step > record;  // the record after a validation counts it
      observe::TrainPoint t;
      t.step = step;
      t.steps = static_cast<double>(record);
      t.nll = train_nll(share) + dropout + 0.01 * normal(random);
      t.loss = t.nll + 1;
      t.learning_rate = 1e-3;
      t.epoch = share * 3;
      t.pairs = 100 * t.steps;
      t.source_tokens = 2500 * t.steps;
      t.target_tokens = 2600 * t.steps;
      const double seconds = step_seconds(share) * t.steps * std::exp(step_noise * normal(random));
      t.data_seconds = data_share * seconds;
      t.compute_seconds = seconds - t.data_seconds;
      t.validation_seconds = pause ? validation_seconds : 0;
      t.checkpoint_seconds = pause ? checkpoint_seconds : 0;
      clock += seconds + t.validation_seconds + t.checkpoint_seconds;
      t.elapsed_seconds = clock;
      t.time = 1.7e9 + clock;
      m.train.push_back(t);
      if (step % every == 0) {
        observe::ValidPoint v{.step = step, .time = t.time};
        v.nll = nll(share) + nll_noise * normal(random);
        v.train_nll = train_nll(share) + nll_noise * normal(random);
        v.bleu = bleu(share) + bleu_noise * normal(random);
        v.seconds = validation_seconds;
        v.elapsed_seconds = clock;
        m.valid.push_back(v);
      }
    }
    if (ended) {
      m.events.push_back({last, 1.7e9 + clock, "end", "all steps are done"});
    }
    run.ranks.push_back(m);
    return run;
  }
};

inline double falling(double share) { return 1.6 + 2.4 * std::exp(-4 * share); }   // still falls at the end
inline double settled(double share) { return 1.8 + 2.4 * std::exp(-30 * share); }  // flat from a third on
inline double rises_late(double share) { return settled(share) + 0.6 * std::max(0.0, share - 0.4); }
inline double memorises(double share) { return 0.3 + 3.0 * std::exp(-3 * share); }
inline double bleu_up(double share) { return 30 - 25 * std::exp(-4 * share); }
inline double bleu_settled(double share) { return 28 - 25 * std::exp(-30 * share); }
inline double bleu_down(double share) { return bleu_settled(share) - 8 * std::max(0.0, share - 0.4); }

}  // namespace tandem::testing
