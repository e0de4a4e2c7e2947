#include "train/step_meter.h"

#include "observe/probes/host_probes.h"
#include "train/flops.h"

namespace tandem::train {

observe::TrainPoint counts_of(const data::TrainStep& step, int64_t number, double learning_rate,
                              const Learner& learner) {
  observe::TrainPoint counts;
  counts.records = 0;  // only a part of a record
  counts.steps = 1;
  counts.step = number;
  counts.epoch = step.epochs_done;
  counts.learning_rate = learning_rate;
  counts.pairs = static_cast<double>(step.pairs);
  counts.source_tokens = static_cast<double>(step.source_tokens);
  counts.target_tokens = static_cast<double>(step.target_tokens);
  counts.flops = step_flops(learner.model().config(), step);
  counts.rows = static_cast<double>(learner.rows_of(step));
  counts.dead_rows = counts.rows - static_cast<double>(tokens_of(step));
  const dist::Traffic planned = learner.planned_traffic(step);
  counts.sent_bytes = static_cast<double>(planned.sent);
  counts.received_bytes = static_cast<double>(planned.received);
  return counts;
}

void StepMeter::begin() {
  traffic_ = communicator_.traffic();
  transferred_ = communicator_.transfer_seconds();
  resume();
}

void StepMeter::resume() {
  counted_.lap();
  ended_ = 0;
}

void StepMeter::forget() {
  window_ = {};
  losses_ = {};
  ended_ = 0;
}

void StepMeter::wait_for_data(double seconds) {
  window_.data_seconds += seconds;
  window_.compute_seconds -= seconds;  // because count() adds the whole step
}

void StepMeter::count(const GivenStep& given, const StepResult& result, double elapsed_seconds) {
  const double waited = result.clock.communication_seconds();
  window_ = observe::merged(window_, given.counts);
  window_.elapsed_seconds = elapsed_seconds;
  window_.communication_seconds += waited;
  window_.compute_seconds += counted_.lap() - waited;
  window_.idle_seconds += ended_ == 0 ? 0 : static_cast<double>(result.clock.begin - ended_) * 1e-9;
  ended_ = result.clock.end;
  if (result.update.finite == 0) {
    ++window_.skipped_steps;
    return;
  }
  losses_.smoothed += result.sums.totals.smoothed;
  losses_.nll += result.sums.totals.nll;
  losses_.correct += result.sums.totals.correct;
  losses_.tokens += result.sums.totals.tokens;
  window_.loss = losses_.smoothed / losses_.tokens;
  window_.nll = losses_.nll / losses_.tokens;
  window_.accuracy = losses_.correct / losses_.tokens;
  window_.gradient_norm = result.update.norm;
  window_.clipped_gradient_norm = result.update.norm * static_cast<double>(result.update.clip_factor);
}

observe::TrainPoint StepMeter::take_window() {
  const dist::Traffic now = communicator_.traffic();
  if (now.sent > 0) {  // otherwise the engine does not count, and the planned traffic is kept
    window_.sent_bytes = static_cast<double>(now.sent - traffic_.sent);
    window_.received_bytes = static_cast<double>(now.received - traffic_.received);
    traffic_ = now;
  }
  window_.transfer_seconds = communicator_.transfer_seconds() - transferred_;
  transferred_ += window_.transfer_seconds;
  window_.peak_memory_bytes = static_cast<double>(observe::peak_memory());
  losses_ = {};
  return std::exchange(window_, {});
}

}  // namespace tandem::train
