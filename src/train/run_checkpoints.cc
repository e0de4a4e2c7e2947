#include "train/run_checkpoints.h"

#include "store/checkpoint_state.h"

namespace tandem::train {

void RunCheckpoints::save(store::CheckpointState state) {
  learner_.update().complete(learner_.weights().average());
  const HostTensors tensors = learner_.host_tensors(HostCopy::read);
  if (run_.keeps_checkpoints()) {
    state.micro_batch_source = learner_.fixed_micro_batch().source;
    state.micro_batch_target = learner_.fixed_micro_batch().target;
    const store::Checkpoint checkpoint{state, run_.settings(), data_.source.bytes(),
                                       data_.joint ? "" : data_.target.front().bytes()};
    const auto& root = run_.directory().root();
    const auto directory = store::save_checkpoint(root, checkpoint, learner_.model().parameters(), tensors.views());
    if (state.best_score && state.best_step == state.step) {
      store::set_best(root, directory);
    }
    const store::KeptCheckpoints keep{.newest = config_.checkpoint.keep_last, .best = config_.checkpoint.keep_best};
    store::remove_old_checkpoints(root, keep, config_.stop.metric);
  }
  run_.barrier();
}

std::optional<RunCheckpoints::Loaded> RunCheckpoints::load(const std::optional<std::filesystem::path>& found) {
  const store::CheckpointState saved = found ? store::load_checkpoint(*found, false).state : store::CheckpointState{};
  const double own = found ? static_cast<double>(saved.step) : -1;
  const double newest = run_.largest(own);
  if (newest < 0) {
    return std::nullopt;
  }
  const bool has_it = own == newest;
  const bool everywhere = run_.largest(has_it ? 0 : 1) == 0;
  const int last = run_.size() - 1;
  const int first = last - static_cast<int>(run_.largest(has_it ? last - run_.rank() : -1));  // of those who have it
  Loaded loaded{store::parse_state(run_.broadcast(to_json(saved), first), "another rank's state"), everywhere};
  load_tensors_of(found, everywhere ? run_.rank() : first, !everywhere, loaded.state.updates);
  return loaded;
}

// Rank `from` reads them from its disk; shared: the others get them from it.
void RunCheckpoints::load_tensors_of(const std::optional<std::filesystem::path>& checkpoint, int from, bool shared,
                                     int64_t updates) {
  bool with_average = false;
  HostTensors tensors = learner_.host_tensors(HostCopy::write);
  const store::CheckpointTensors all = tensors.views();
  if (run_.rank() == from) {
    with_average = store::load_tensors(*checkpoint, learner_.model().parameters(), all);
  }
  if (shared) {
    std::vector<View> views{all.weights, all.ema};
    for (const store::SlotTensor& slot : all.slots) {
      views.push_back(slot.view);
    }
    for (const View& view : views) {
      if (!view.empty()) {
        run_.group().communicator().broadcast(view, from);
      }
    }
    with_average = run_.broadcast(with_average ? 1 : 0, from) > 0;
  }
  tensors.commit();
  learner_.resume(updates, with_average);
}

data::MicroBatchCapacity saved_micro_batch(const GroupRun& run) {
  const auto latest = run.directory().root() / "latest";
  if (run.starts_over() || !std::filesystem::exists(latest)) {
    return {};
  }
  try {
    const store::CheckpointState state = store::load_checkpoint(latest, false).state;
    return {state.micro_batch_source, state.micro_batch_target, 0};
  } catch (const Error&) {
    return {};
  }
}

}  // namespace tandem::train
