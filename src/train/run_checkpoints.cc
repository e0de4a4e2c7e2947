#include "train/run_checkpoints.h"

#include <fmt/ranges.h>

#include "core/file.h"
#include "core/human.h"
#include "core/log.h"

namespace tandem::train {

namespace {

// Fails if the tokenizers differ: weights fit only the tokenizer that they were trained with.
void require_same_tokenizer(const store::Checkpoint& checkpoint, const data::Prepared& data,
                            const std::filesystem::path& from) {
  require(checkpoint.source_tokenizer == data.source.bytes() &&
              checkpoint.target_tokenizer == (data.joint ? "" : data.target.front().bytes()),
          "init = {}: this model's tokenizer differs from that of {}; prepare the data with --tokenizer {}",
          from.string(), data.directory.string(), (from / "source.model").string());
}

// Fails if the checkpoint has other data, another model or another seed than this run; logs all other changes.
void check_resume(const store::Checkpoint& saved, const TrainConfig& config, const std::string& data_fingerprint,
                  const std::filesystem::path& run) {
  require(saved.state.data_fingerprint == data_fingerprint,
          "{} was trained on other data than {}: give the same data, another run directory, or --start-over",
          run.string(), config.data);
  const ConfigChanges changes = compare_for_resume(parse_config(saved.config_toml, "the checkpoint's config"), config);
  require(changes.refused.empty(),
          "{} cannot resume with another model or seed ({}): undo the change, give another run directory, or "
          "--start-over",
          run.string(), fmt::join(changes.refused, "; "));
  for (const std::string& change : changes.allowed) {
    log::info("changed since the checkpoint: {}", change);
  }
}

}  // namespace

store::CheckpointState RunCheckpoints::begin_fresh() {
  learner_.begin([&](const View& weights) {
    if (!config_.init.empty()) {
      const auto from = store::resolve_model(config_.init);
      require_same_tokenizer(store::load_checkpoint(from, false), data_, from);
      store::load_inference_weights(from, learner_.model().parameters(), weights);
      log::info("the initial weights are those of {}", from.string());
    }
  });
  store::CheckpointState state;
  state.seed = config_.seed;
  state.data_fingerprint = data_.fingerprint;
  return state;
}

std::optional<RunCheckpoints::Loaded> RunCheckpoints::resume() {
  const auto& root = run_.directory().root();
  const auto found = store::find_latest(root);
  if (found) {
    check_resume(store::load_checkpoint(*found), config_, data_.fingerprint, root);
  }
  auto loaded = load(found);
  if (!loaded) {
    return std::nullopt;
  }
  const store::CheckpointState& state = loaded->state;
  log::info("resuming from step {} ({}); --start-over begins again", grouped(state.step),
            found ? found->string() : "another host's checkpoint");
  const data::MicroBatchCapacity now = learner_.fixed_micro_batch(), before = state.micro_batch;
  if (run_.first() && now.source > 0 && before.source > 0 &&
      (now.source != before.source || now.target != before.target)) {
    log::warning(
        "a micro-batch now has room for {} + {} tokens, before for {} + {}: gradients are added up in another "
        "order, so the run will not give the same bits",
        grouped(now.source), grouped(now.target), grouped(before.source), grouped(before.target));
  }
  return loaded;
}

void RunCheckpoints::save(store::CheckpointState state, std::function<void()> before) {
  learner_.update().complete(learner_.weights().average());
  writing_.settle();  // its thread reads the tensors
  tensors_.read();
  if (run_.keeps_checkpoints()) {
    state.micro_batch = learner_.fixed_micro_batch();
    writing_.begin([this, before = std::move(before),
                    checkpoint = store::Checkpoint{std::move(state), run_.settings(), data_.source.bytes(),
                                                   data_.joint ? "" : data_.target.front().bytes()}] {
      before();
      write(checkpoint);
    });
  }
}

void RunCheckpoints::write(const store::Checkpoint& checkpoint) const {
  const auto& root = run_.directory().root();
  const auto directory = store::save_checkpoint(root, checkpoint, learner_.model().parameters(), tensors_.views());
  if (checkpoint.state.best_score && checkpoint.state.best_step == checkpoint.state.step) {
    store::set_best(root, directory);
  }
  const store::KeptCheckpoints keep{.newest = config_.checkpoint.keep_last, .best = config_.checkpoint.keep_best};
  store::remove_old_checkpoints(root, keep, config_.stop.metric);
}

void RunCheckpoints::finish() {
  const std::string failure = writing_.settle();
  require(failure.empty(), "{}", failure);
  run_.barrier();
}

std::optional<RunCheckpoints::Loaded> RunCheckpoints::load_newest() {
  writing_.settle();
  return load(store::find_latest(run_.directory().root()));
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
  const int first = last - static_cast<int>(run_.largest(has_it ? last - run_.rank() : -1));  // lowest rank that has it
  Loaded loaded{store::parse_state(run_.broadcast(to_json(saved), first), "another rank's state"), everywhere};
  load_tensors_of(found, everywhere ? run_.rank() : first, !everywhere, loaded.state.updates);
  return loaded;
}

// Rank `from` reads the tensors from its disk; if `shared`, it sends them to the others.
void RunCheckpoints::load_tensors_of(const std::optional<std::filesystem::path>& checkpoint, int from, bool shared,
                                     int64_t updates) {
  bool with_average = false;
  HostTensors tensors = learner_.host_tensors(HostTensors::load);
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
    return store::load_checkpoint(latest, false).state.micro_batch;
  } catch (const Error&) {
    return {};
  }
}

std::string use_algorithms(backend::Backend& backend, const GroupRun& run, const TrainConfig& config) {
  constexpr size_t kMostBytes = 1 << 20;
  const bool has_own = !run.starts_over() && std::filesystem::exists(run.directory().algorithms());
  if (has_own) {
    try {
      const std::string own = read_file(run.directory().algorithms(), kMostBytes);
      backend.use_algorithms(own, run.directory().algorithms().string());
      if (run.first() && !config.algorithms.empty() && own != read_small_file(config.algorithms)) {
        log::warning("the run keeps the algorithms that it began with, {}, not with {}",
                     run.directory().algorithms().string(), config.algorithms);
      }
      return "";
    } catch (const Error& error) {
      log::warning("{}; the run will not give the same bits", error.what());
    }
  }
  std::string table;
  try {
    table = config.algorithms.empty() ? "" : read_file(config.algorithms, kMostBytes);
    if (!table.empty()) {
      backend.use_algorithms(table, config.algorithms);
    }
  } catch (const Error& error) {
    if (!has_own) {
      throw;
    }
    log::warning("{}; the run continues without a table", error.what());
    return "";
  }
  if (!table.empty() && !has_own && run.first() && !run.starts_over() && store::find_latest(run.directory().root())) {
    log::warning("the run began without a table of algorithms; with {} it will not give the same bits",
                 config.algorithms);
  }
  return table;
}

}  // namespace tandem::train
