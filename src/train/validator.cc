#include "train/validator.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stop_token>
#include <tuple>

#include "core/log.h"
#include "core/parse.h"
#include "core/philox.h"
#include "decode/batches.h"
#include "decode/line_translator.h"
#include "text/chrf.h"
#include "train/memory_plan.h"

namespace tandem::train {

namespace {

// Limits of a forward pass, which bound its memory: tokens of each side, unless a sentence is longer, and pairs.
constexpr int64_t kTokensAtATime = 2048;
constexpr int64_t kPairsAtATime = 512;

int64_t most_tokens(const model::ModelConfig& model) { return std::max(kTokensAtATime, model.max_length); }

BatchLayout layout_for(const model::ModelConfig& model, int64_t tokens) {
  return {data::MicroBatchCapacity{tokens, tokens, kPairsAtATime}, model.max_length, model};
}

size_t planned_bytes_for(const backend::Backend& backend, const model::ModelConfig& model, DType compute,
                         int64_t tokens) {
  return plan_pass(backend, model, compute, layout_for(model, tokens), [](const PlannedPass& pass) {
    pass.model.evaluate(pass.weights.weights(), pass.batch, 0, pass.totals, pass.arena);
  });
}

PairLoss evaluate_parts(backend::Backend& backend, const model::Transformer& model, const nn::Weights& weights,
                        const std::vector<Ids>& source, const std::vector<Ids>& target, int64_t most, Arena& arena,
                        const std::function<bool()>& stop) {
  PairLoss result;
  const Buffer memory = backend.allocate(sizeof(backend::LossTotals));
  const View words = memory.view(DType::i32, 1, sizeof(backend::LossTotals) / sizeof(int32_t));
  auto* totals = static_cast<backend::LossTotals*>(memory.data());
  backend.fill_zero(words);
  BatchWork work(backend, model.config(), {layout_for(model.config(), most)});
  arena.reset();
  if (work.replays()) {  // the arena must not grow during replays
    arena.reserve(planned_bytes_for(backend, model.config(), weights.compute.dtype, most));
  }
  const auto limit = static_cast<size_t>(model.config().max_length);
  std::vector<Ids> part_source, part_target;
  int64_t source_tokens = 0, target_tokens = 0;
  const auto flush = [&] {
    if (!part_source.empty()) {
      work.give(data::pack(part_source, part_target), {}, {}, 0, true, [&](const BatchWork::Given& given) {
        arena.reset();
        model.evaluate(weights, given.batch, 0, totals, arena);
      });
      part_source.clear();
      part_target.clear();
      source_tokens = target_tokens = 0;
    }
  };
  for (size_t i = 0; i < source.size() && !stop(); ++i) {
    if (source[i].size() + 1 > limit || target[i].size() + 1 > limit) {
      ++result.too_long;
      continue;
    }
    const auto more_source = static_cast<int64_t>(source[i].size()) + 1;
    const auto more_target = static_cast<int64_t>(target[i].size()) + 1;
    if (std::max(source_tokens + more_source, target_tokens + more_target) > most ||
        static_cast<int64_t>(part_source.size()) == kPairsAtATime) {
      flush();
    }
    part_source.push_back(source[i]);
    part_target.push_back(target[i]);
    source_tokens += more_source;
    target_tokens += more_target;
  }
  flush();
  backend.download(&result.totals, words);
  return result;
}

constexpr uint32_t kTrainSamplePurpose = 0x5A3;

std::vector<Ids> encode(const text::Subwords& subwords, const std::vector<std::string>& lines) {
  std::vector<Ids> ids(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    subwords.encode(lines[i], ids[i]);
  }
  return ids;
}

// This rank's part of a set on which all ranks work.
template <class T>
std::vector<T> part_of(const std::vector<T>& all, const GroupRun& run) {
  const auto at = [&](int rank) {
    return all.begin() +
           static_cast<std::ptrdiff_t>(all.size() * static_cast<size_t>(rank) / static_cast<size_t>(run.size()));
  };
  return {at(run.rank()), at(run.rank() + 1)};
}

// The lines of all ranks, by rank.
std::vector<std::string> gather_lines(GroupRun& run, const std::vector<std::string>& part) {
  std::vector<std::string> all;
  for (const std::string& text : run.gather(part.empty() ? "" : fmt::format("{}\n", fmt::join(part, "\n")))) {
    const std::vector<std::string> lines = split(text, '\n');
    all.insert(all.end(), lines.begin(), lines.end());
  }
  return all;
}

}  // namespace

size_t planned_evaluation_bytes(const backend::Backend& backend, const model::ModelConfig& model, DType compute) {
  return planned_bytes_for(backend, model, compute, most_tokens(model));
}

PairLoss evaluate_loss(backend::Backend& backend, model::Transformer& model, const nn::Weights& weights,
                       const std::vector<Ids>& source, const std::vector<Ids>& target, Arena& arena,
                       const std::function<bool()>& stop) {
  require(source.size() == target.size(), "{} source and {} target sentences", source.size(), target.size());
  for (int64_t tokens = most_tokens(model.config());;) {
    try {
      return evaluate_parts(backend, model, weights, source, target, tokens, arena, stop);
    } catch (const backend::OutOfMemory& error) {
      arena.clear();
      if (tokens == model.config().max_length) {
        throw;
      }
      tokens = std::max(tokens / 2, model.config().max_length);
      log::warning("{}; the loss is computed over {} tokens at a time", error.what(), tokens);
    }
  }
}

std::map<std::string, double> ValidationResult::metrics() const {
  std::map<std::string, double> all;
  if (valid.totals.tokens > 0) {
    all["nll"] = valid.nll();
    all["perplexity"] = std::exp(valid.nll());
    all["accuracy"] = valid.accuracy();
  }
  if (train.totals.tokens > 0) {
    all["train_nll"] = train.nll();
  }
  if (bleu) {
    all["bleu"] = bleu->score;
    all["chrf"] = chrf;
  }
  return all;
}

Validator::Validator(backend::Backend& backend, model::Transformer& model, const data::Prepared& data,
                     const TrainConfig& config, GroupRun& run)
    : backend_(backend),
      model_(model),
      data_(data),
      run_(run),
      config_(config.validation),
      threads_(config.threads),
      text_(data.valid) {
  if (config_.max_sentences > 0 && text_.size() > static_cast<size_t>(config_.max_sentences)) {
    text_.source.resize(static_cast<size_t>(config_.max_sentences));
    text_.target.resize(static_cast<size_t>(config_.max_sentences));
  }
  valid_source_ = encode(data.subwords(Side::source), text_.source);
  valid_target_ = encode(data.subwords(Side::target), text_.target);

  PhiloxStream random(config.seed, kTrainSamplePurpose);
  for (int64_t i = 0; i < std::min(config_.train_sample, data.train.size()); ++i) {
    const auto pair = static_cast<int64_t>(random.below(static_cast<uint64_t>(data.train.size())));
    train_source_.push_back(data.plain_tokens(Side::source, pair));
    train_target_.push_back(data.plain_tokens(Side::target, pair));
  }
}

std::optional<ValidationResult> Validator::run(const nn::Weights& weights, Arena& arena,
                                               const std::function<bool()>& stop) {
  ValidationResult result;
  for (const auto& [loss_of, source, target] : {std::tuple(&result.valid, &valid_source_, &valid_target_),
                                                std::tuple(&result.train, &train_source_, &train_target_)}) {
    const std::optional<PairLoss> measured = loss(weights, *source, *target, arena, stop);
    if (!measured) {
      return std::nullopt;
    }
    *loss_of = *measured;
  }
  arena.clear();                                              // decoding needs the memory
  const bool sound = std::isfinite(result.valid.totals.nll);  // the same value on all ranks
  if (config_.decode && !valid_source_.empty() && !sound) {
    log::warning("the validation loss is not a number, so nothing is translated");
  } else if (config_.decode && !valid_source_.empty() && !translate(result, weights, stop)) {
    return std::nullopt;
  }
  return result;
}

std::optional<PairLoss> Validator::loss(const nn::Weights& weights, const std::vector<Ids>& source,
                                        const std::vector<Ids>& target, Arena& arena,
                                        const std::function<bool()>& stop) {
  bool stopped = false;  // once true it stays so, whatever stop() says later
  PairLoss result = evaluate_loss(backend_, model_, weights, part_of(source, run_), part_of(target, run_), arena,
                                  [&] { return stopped = stopped || stop(); });
  double sums[] = {result.totals.smoothed,
                   result.totals.nll,
                   result.totals.correct,
                   result.totals.tokens,
                   static_cast<double>(result.too_long),
                   stopped ? 1.0 : 0.0};
  run_.group().communicator().all_reduce(host_view(sums, 1, 6));
  if (sums[5] > 0) {
    return std::nullopt;
  }
  result.totals = {sums[0], sums[1], sums[2], sums[3]};
  result.too_long = static_cast<int64_t>(sums[4]);
  return result;
}

bool Validator::translate(ValidationResult& result, const nn::Weights& weights, const std::function<bool()>& stop) {
  decode::BatchDecoder decoder(backend_, model_, weights);
  TranslateOptions options;
  options.search = {.beam = config_.beam, .alpha = config_.alpha};
  std::stop_source stopping;
  options.call.on_progress = [&, status = decode::translation_status()](const CallProgress& progress) {
    if (stop()) {
      stopping.request_stop();
    }
    status(progress);
  };
  options.call.stop = stopping.get_token();
  decode::LineTranslator translator(decoder, data_.subwords(Side::source), data_.subwords(Side::target), threads_);
  std::vector<std::string> own;
  try {
    own = translator.translate_best(part_of(text_.source, run_), options);
  } catch (const Error&) {
    if (!stopping.stop_requested()) {
      throw;
    }
  }
  if (run_.largest(stopping.stop_requested() ? 1 : 0) > 0) {
    return false;
  }
  const std::vector<std::string> translations = gather_lines(run_, own);
  result.bleu = text::corpus_score_with_interval(translations, {text_.target}, text::BleuOptions{});
  result.bleu_signature = text::signature(text::BleuOptions{}, 1);
  result.chrf = text::corpus_score(translations, {text_.target}, text::ChrfOptions{}).score;
  for (size_t i = 0; i < std::min(translations.size(), static_cast<size_t>(config_.samples)); ++i) {
    result.samples.push_back({text_.source[i], text_.target[i], translations[i]});
  }
  return true;
}

}  // namespace tandem::train
