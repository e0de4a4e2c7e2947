// libtandem's interface over the model, the decoder and the scorer.
#include "tandem/translator.h"

#include <exception>
#include <mutex>

#include "backend/cuda_device.h"
#include "backend/precision.h"
#include "core/error.h"
#include "core/log.h"
#include "decode/line_translator.h"
#include "decode/pair_scorer.h"
#include "store/model_loader.h"

namespace tandem {

namespace {

log::Redirect::Sink sink_of(const ModelOptions& options) {
  if (!options.on_message) {
    return {};
  }
  return [tell = options.on_message](bool warning, const std::string& line) {
    tell(warning ? Severity::warning : Severity::info, line);
  };
}

// Turns every exception that leaves the library into an Error. It must be of exactly this class, since derived types
// are not exported.
template <class Body>
auto guarded(const log::Redirect::Sink& sink, const Body& body) {
  const log::Redirect redirect(sink);
  try {
    return body();
  } catch (const std::exception& error) {
    throw Error(error.what());
  } catch (...) {
    throw Error("a callback threw something other than a std::exception");
  }
}

}  // namespace

struct Translator::State {
  State(const std::filesystem::path& path, const ModelOptions& options)
      : backend(backend::make_backend(options.device, options.threads)),
        compute(backend::compute_type(options.precision, *backend)),
        model(*backend, path, compute, options.use_average),
        decoder(*backend, model.model(), model.weights()),
        lines(decoder, model.subwords(Side::source), model.subwords(Side::target), options.threads),
        pairs(*backend, model.model(), model.weights()) {
    const model::ModelConfig& config = model.model().config();
    info = {.directory = model.directory().string(),
            .step = model.step(),
            .device = backend->description(),
            .precision = compute == DType::bf16 ? Precision::bf16 : Precision::f32,
            .max_pieces = config.max_length,
            .source_vocabulary = config.source_vocabulary,
            .target_vocabulary = config.target_vocabulary,
            .usual_batch = backend->traits().decode_sentences};
    if (model.weights().masters.memory == Memory::device) {
      gpu = backend::gpu_of_this_thread();
    }
  }

  std::vector<std::vector<int32_t>> encode(Side side, std::span<const std::string> texts) const {
    std::vector<std::vector<int32_t>> ids(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      model.subwords(side).encode(texts[i], ids[i]);
    }
    return ids;
  }

  // Runs every call: one at a time, on the model's GPU.
  template <class Body>
  auto run(const Body& body) {
    const std::lock_guard lock(busy);
    return guarded(sink, [&] {
      if (gpu >= 0) {
        backend::use_gpu(gpu);
      }
      return body();
    });
  }

  std::mutex busy;
  log::Redirect::Sink sink;
  ModelInfo info;
  std::unique_ptr<backend::Backend> backend;
  int gpu = -1;
  DType compute;
  store::InferenceModel model;
  decode::BatchDecoder decoder;
  decode::LineTranslator lines;
  decode::PairScorer pairs;
};

Translator::Translator(const std::filesystem::path& model, const ModelOptions& options) {
  log::Redirect::Sink sink = sink_of(options);
  state_ = guarded(sink, [&] { return std::make_unique<State>(model, options); });
  state_->sink = std::move(sink);
}

Translator::~Translator() = default;
Translator::Translator(Translator&&) noexcept = default;
Translator& Translator::operator=(Translator&&) noexcept = default;

const ModelInfo& Translator::info() const { return state_->info; }

std::vector<std::vector<Translation>> Translator::translate(std::span<const std::string> lines,
                                                            const TranslateOptions& options) {
  return state_->run([&] { return state_->lines.translate(lines, options); });
}

Translation Translator::translate_line(const std::string& line, const TranslateOptions& options) {
  return translate(std::span(&line, 1), options).front().front();
}

std::vector<PairScore> Translator::score(std::span<const std::string> sources, std::span<const std::string> targets,
                                         const CallOptions& options) {
  return state_->run([&] {
    return state_->pairs.score(state_->encode(Side::source, sources), state_->encode(Side::target, targets), options);
  });
}

const char* version() { return TANDEM_VERSION; }

}  // namespace tandem
