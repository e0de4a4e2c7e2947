#include "train/validator.h"

#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "decode/translator.h"
#include "text/chrf.h"

namespace tandem {

namespace {

constexpr uint32_t kTrainSamplePurpose = 0x5A3;

std::vector<Ids> encode(const Subwords& subwords, const std::vector<std::string>& lines) {
  std::vector<Ids> ids(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    subwords.encode(lines[i], ids[i]);
  }
  return ids;
}

}  // namespace

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

Validator::Validator(Backend& backend, Transformer& model, const Prepared& data, const TrainConfig& config)
    : backend_(backend), model_(model), data_(data), config_(config.validation), text_(data.valid) {
  if (config_.max_sentences > 0 && text_.size() > static_cast<size_t>(config_.max_sentences)) {
    text_.source.resize(static_cast<size_t>(config_.max_sentences));
    text_.target.resize(static_cast<size_t>(config_.max_sentences));
  }
  valid_source_ = encode(data.subwords(Side::source), text_.source);
  valid_target_ = encode(data.subwords(Side::target), text_.target);

  PhiloxStream random(config.seed, kTrainSamplePurpose);
  for (int64_t i = 0; i < std::min(config_.train_sample, data.train.size()); ++i) {
    const auto pair = static_cast<int64_t>(random.below(static_cast<uint64_t>(data.train.size())));
    data.train.append(Side::source, pair, train_source_.emplace_back());
    data.train.append(Side::target, pair, train_target_.emplace_back());
  }
}

ValidationResult Validator::run(const Weights& weights, Arena& arena, const std::function<void()>& between) {
  ValidationResult result;
  result.valid = evaluate_loss(backend_, model_, weights, valid_source_, valid_target_, arena);
  result.train = evaluate_loss(backend_, model_, weights, train_source_, train_target_, arena);
  if (config_.decode && !valid_source_.empty()) {
    translate(result, weights, between);
  }
  return result;
}

void Validator::translate(ValidationResult& result, const Weights& weights, const std::function<void()>& between) {
  BatchDecoder decoder(backend_, model_, weights);
  TranslateOptions options;
  options.decode = {.beam = config_.beam, .alpha = config_.alpha};
  options.before_batch = between;
  Translator translator(decoder, data_.subwords(Side::source), data_.subwords(Side::target), options);
  const std::vector<std::string> translations = translator.translate_best(text_.source);
  result.bleu = corpus_bleu(translations, {text_.target});
  result.bleu_signature = signature(BleuOptions{}, 1);
  result.chrf = corpus_chrf(translations, {text_.target}).score;
  for (size_t i = 0; i < std::min(translations.size(), static_cast<size_t>(config_.samples)); ++i) {
    result.samples.push_back({text_.source[i], text_.target[i], translations[i]});
  }
}

}  // namespace tandem
