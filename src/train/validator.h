// What a validation measures, always in evaluation mode (no dropout): plain negative log-likelihood on the validation
// set and on a fixed sample of training pairs, and BLEU and chrF of decoded, detokenised text against the raw
// reference.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/prepared.h"
#include "model/transformer.h"
#include "text/bleu.h"
#include "train/config.h"
#include "train/group_run.h"

namespace tandem::train {

// ---- the loss of given sentence pairs, each counted once

using Ids = std::vector<int32_t>;  // pieces of one sentence, without bos and eos

struct PairLoss {
  backend::LossTotals totals;
  int64_t too_long = 0;  // pairs left out because a side exceeds the model's length

  double nll() const { return totals.nll / totals.tokens; }  // nats per target token, including end marks
  double accuracy() const { return totals.correct / totals.tokens; }
};

// Bytes of arena that evaluate_loss() needs on a backend with fixed capacities.
size_t planned_evaluation_bytes(const backend::Backend& backend, const model::ModelConfig& model, DType compute);

// stop: asked between passes; if it is true, the rest is left out.
PairLoss evaluate_loss(
    backend::Backend& backend, model::Transformer& model, const nn::Weights& weights, const std::vector<Ids>& source,
    const std::vector<Ids>& target, Arena& arena, const std::function<bool()>& stop = [] { return false; });

// ---- a validation

struct ValidationResult {
  PairLoss valid;                       // without tokens if there is no validation set
  PairLoss train;                       // the fixed sample of training pairs
  std::optional<text::BleuScore> bleu;  // with its interval
  std::string bleu_signature;
  double chrf = 0;

  struct Sample {
    std::string source, reference, translation;
  };
  std::vector<Sample> samples;

  // Keys are the names in checkpoints and metrics: nll, perplexity, accuracy, train_nll, bleu, chrf.
  std::map<std::string, double> metrics() const;
};

class Validator {
 public:
  // All arguments must outlive the validator. Each rank of the run works on a part of every set.
  Validator(backend::Backend& backend, model::Transformer& model, const data::Prepared& data, const TrainConfig& config,
            GroupRun& run);

  // Called by all ranks, with the same result on all. stop: asked between batches; if it is true on any rank, all give
  // up and the result is nothing.
  std::optional<ValidationResult> run(const nn::Weights& weights, Arena& arena, const std::function<bool()>& stop);

 private:
  // Nothing is in the result, or false is returned, if a rank has given up.
  std::optional<PairLoss> loss(const nn::Weights& weights, const std::vector<Ids>& source,
                               const std::vector<Ids>& target, Arena& arena, const std::function<bool()>& stop);
  bool translate(ValidationResult& result, const nn::Weights& weights, const std::function<bool()>& stop);

  backend::Backend& backend_;
  model::Transformer& model_;
  const data::Prepared& data_;
  GroupRun& run_;
  ValidationConfig config_;
  int threads_;
  data::TextPairs text_;  // at most config.max_sentences
  std::vector<Ids> valid_source_, valid_target_;
  std::vector<Ids> train_source_, train_target_;
};

}  // namespace tandem::train
