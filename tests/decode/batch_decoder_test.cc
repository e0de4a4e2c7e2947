// Beam search with a small random Transformer: against recomputation without a cache, and the same for every batch and
// thread count.
#include "decode/batch_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "backend/forwarding.h"
#include "core/philox.h"
#include "text/subwords.h"

namespace tandem::decode {
namespace {

using Ids = std::vector<int32_t>;

model::ModelConfig tiny_config() {
  model::ModelConfig config;
  config.source_vocabulary = config.target_vocabulary = 37;
  config.encoder_layers = config.decoder_layers = 2;
  config.width = 16;
  config.heads = 2;
  config.feed_forward = 32;
  config.max_length = 24;
  return config;
}

// A model with random weights, large enough that its distributions are far from uniform.
struct TinyModel {
  explicit TinyModel(int threads, const model::ModelConfig& config = tiny_config(), uint64_t seed = 3)
      : backend(backend::make_cpu_backend(threads)), model(*backend, config) {
    const ParameterLayout& layout = model.parameters();
    masters.resize(static_cast<size_t>(layout.flat_size()));
    const View view = host_view(masters.data(), 1, layout.flat_size());
    initialize(view, layout, seed);
    for (const Parameter& parameter : layout.all()) {
      PhiloxStream random(seed, 9, static_cast<uint32_t>(parameter.offset));
      if (!parameter.is_vector) {
        for (int64_t i = 0; i < parameter.size(); ++i) {
          masters[static_cast<size_t>(parameter.offset + i)] *= 2.0F + 0.1F * uniform(random.next());
        }
      }
    }
    weights = {view, view};
  }

  std::unique_ptr<backend::Backend> backend;
  model::Transformer model;
  std::vector<float> masters;
  nn::Weights weights;
};

std::vector<Ids> random_sources(size_t count, size_t longest) {
  PhiloxStream random(77, 5);
  std::vector<Ids> sources(count);
  for (Ids& ids : sources) {
    for (uint64_t length = random.below(longest + 1); length > 0; --length) {
      ids.push_back(static_cast<int32_t>(3 + random.below(34)));
    }
  }
  return sources;
}

// Log-probabilities of the next piece by the training path: the whole beginning anew, no cache.
std::vector<double> next_log_probabilities(TinyModel& tiny, const Ids& source, const Ids& beginning) {
  Arena arena([&](size_t bytes) { return tiny.backend->allocate(bytes); });
  const auto side = [&](const Ids& tokens) {
    const auto rows = static_cast<int64_t>(tokens.size());
    Ids position, starts = {0, static_cast<int32_t>(rows)};
    for (int32_t i = 0; i < rows; ++i) {
      position.push_back(i);
    }
    model::PackedSide packed;
    packed.tokens = arena.take(DType::i32, 1, rows);
    packed.position = arena.take(DType::i32, 1, rows);
    packed.starts = arena.take(DType::i32, 1, 2);
    packed.longest = rows;
    tiny.backend->upload(packed.tokens, tokens.data());
    tiny.backend->upload(packed.position, position.data());
    tiny.backend->upload(packed.starts, starts.data());
    return packed;
  };
  Ids with_end = source, with_begin = {text::kBos};
  with_end.push_back(text::kEos);
  with_begin.insert(with_begin.end(), beginning.begin(), beginning.end());
  model::Batch batch;
  batch.source = side(with_end);
  batch.target = side(with_begin);
  const View logits = tiny.model.logits(tiny.weights, batch, arena);
  const View last = logits.slice_rows(logits.rows - 1, 1);
  std::vector<float> values(static_cast<size_t>(last.cols));
  tiny.backend->download(values.data(), last);
  double sum = 0;
  for (const float value : values) {
    sum += std::exp(double{value});
  }
  std::vector<double> result;
  for (const float value : values) {
    result.push_back(double{value} - std::log(sum));
  }
  return result;
}

// The best piece that may be chosen.
int32_t best_piece(std::vector<double> values) {
  values[text::kPad] = values[text::kBos] = -INFINITY;
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

TEST(BatchDecoder, GreedyEqualsStepByStepRecomputation) {
  TinyModel tiny(1);
  BatchDecoder decoder(*tiny.backend, tiny.model, tiny.weights);
  const auto sources = random_sources(25, 12);
  const auto results = decoder.translate(sources, {.beam = 1, .max_extra = 8});
  size_t pieces = 0;
  for (size_t s = 0; s < sources.size(); ++s) {
    const size_t limit = std::min<size_t>(sources[s].size() + 1 + 8, 24);
    Ids expected;
    double total = 0;
    while (expected.size() < limit) {
      const std::vector<double> values = next_log_probabilities(tiny, sources[s], expected);
      const int32_t best = best_piece(values);
      total += values[static_cast<size_t>(best)];
      if (best == text::kEos) {
        break;
      }
      expected.push_back(best);
    }
    ASSERT_EQ(results[s].size(), 1U);
    EXPECT_EQ(results[s][0].ids, expected) << "sentence " << s;
    EXPECT_NEAR(results[s][0].log_probability, total, 1e-4);
    pieces += expected.size();
  }
  EXPECT_GT(pieces, 25U) << "the random model ends at once: nothing was compared";
}

TEST(BatchDecoder, ScoresOfABeamAreThoseOfRecomputation) {
  TinyModel tiny(1);
  BatchDecoder decoder(*tiny.backend, tiny.model, tiny.weights);
  const auto sources = random_sources(6, 10);
  const auto results = decoder.translate(sources, {.beam = 5, .n_best = 5, .max_extra = 6});
  int compared = 0;
  for (size_t s = 0; s < sources.size(); ++s) {
    const size_t limit = std::min<size_t>(sources[s].size() + 1 + 6, 24);
    for (const Hypothesis& hypothesis : results[s]) {
      Ids labels = hypothesis.ids;
      if (labels.size() < limit) {
        labels.push_back(text::kEos);
      }
      double total = 0;
      for (size_t i = 0; i < labels.size(); ++i) {
        const Ids beginning(labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(i));
        total += next_log_probabilities(tiny, sources[s], beginning)[static_cast<size_t>(labels[i])];
      }
      EXPECT_NEAR(hypothesis.log_probability, total, 1e-4);
      EXPECT_NEAR(hypothesis.score, total / length_penalty(static_cast<int64_t>(labels.size()), 0.6), 1e-4);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 30);
}

void expect_same(const std::vector<std::vector<Hypothesis>>& actual, std::span<const std::vector<Hypothesis>> expected,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t s = 0; s < actual.size(); ++s) {
    ASSERT_EQ(actual[s].size(), expected[s].size()) << what;
    for (size_t i = 0; i < actual[s].size(); ++i) {
      ASSERT_EQ(actual[s][i].ids, expected[s][i].ids) << what << ", sentence " << s;
      ASSERT_EQ(actual[s][i].log_probability, expected[s][i].log_probability) << what << ", sentence " << s;
    }
  }
}

TEST(BatchDecoder, SameBitsForEveryBatchAndThreadCount) {
  const auto sources = random_sources(1000, 7);
  const SearchOptions config{.beam = 4, .n_best = 2, .max_extra = 3};
  const bool soak = std::getenv("TANDEM_SOAK") != nullptr;
  std::vector<std::vector<Hypothesis>> expected;
  for (const int threads : {1, 2, 4}) {
    TinyModel tiny(threads);
    BatchDecoder decoder(*tiny.backend, tiny.model, tiny.weights);
    for (const size_t batch : {64, 7, 2, 1}) {
      // Tiny batches on several threads are slow: all sentences only in the soak.
      const size_t count = threads == 1 || batch >= 7 || soak ? sources.size() : 50;
      std::vector<std::vector<Hypothesis>> results;
      for (size_t begin = 0; begin < count; begin += batch) {
        auto part = decoder.translate(std::span(sources).subspan(begin, std::min(batch, count - begin)), config);
        std::move(part.begin(), part.end(), std::back_inserter(results));
      }
      if (expected.empty()) {
        expected = results;
      }
      expect_same(results, std::span(expected).first(count), fmt::format("batch {}, {} threads", batch, threads));
    }
  }
}

// Counts what travels between the host and the device, which waits meanwhile.
class CountingBackend final : public backend::ForwardingBackend {
 public:
  using backend::ForwardingBackend::ForwardingBackend;
  void upload(const View& to, const void* from) override {
    ++uploads;
    backend::ForwardingBackend::upload(to, from);
  }
  void download(void* to, const ConstView& from) override {
    ++downloads;
    backend::ForwardingBackend::download(to, from);
  }
  void run(const backend::op::Any& op) override {
    steps += std::holds_alternative<backend::op::TopLogProbabilities>(op) ? 1 : 0;
    backend::ForwardingBackend::run(op);
  }
  int uploads = 0, downloads = 0, steps = 0;
};

TEST(BatchDecoder, AStepIsOneUploadAndOneDownload) {
  TinyModel tiny(1);
  CountingBackend counting(*tiny.backend);
  BatchDecoder decoder(counting, tiny.model, tiny.weights);
  decoder.translate(random_sources(9, 10), {.beam = 4});
  EXPECT_GT(counting.steps, 5);
  EXPECT_EQ(counting.downloads, counting.steps);
  EXPECT_EQ(counting.uploads, counting.steps + 1) << "one more for the sources";
}

TEST(BatchDecoder, LimitsAreThoseOfTheSentenceAndTheModel) {
  TinyModel tiny(1);
  BatchDecoder decoder(*tiny.backend, tiny.model, tiny.weights);
  const std::vector<Ids> sources = {{5, 6}, Ids(23, 7), {}};
  for (const int64_t extra : {0, 2, 1000}) {
    const auto results = decoder.translate(sources, {.beam = 3, .n_best = 3, .max_extra = extra});
    for (size_t s = 0; s < sources.size(); ++s) {
      for (const Hypothesis& hypothesis : results[s]) {
        EXPECT_LE(hypothesis.ids.size(), std::min<size_t>(sources[s].size() + 1 + static_cast<size_t>(extra), 24));
      }
    }
  }
  const std::vector<Ids> too_long = {Ids(24, 7)};
  EXPECT_THROW(decoder.translate(too_long, {}), Error);
  EXPECT_TRUE(decoder.translate({}, {}).empty());
}

// Rows that fill up a step are nobody's.
TEST(BatchDecoder, RowsThatFillUpAStepChangeNothing) {
  class Rounding : public backend::ForwardingBackend {
   public:
    using backend::ForwardingBackend::ForwardingBackend;
    backend::DeviceTraits traits() const override {
      backend::DeviceTraits traits = inner_.traits();
      traits.decode_rows_step = 64;
      return traits;
    }
  };
  TinyModel tiny(1);
  Rounding rounding(*tiny.backend);
  model::Transformer model(rounding, tiny.model.config());
  BatchDecoder plain(*tiny.backend, tiny.model, tiny.weights), filled(rounding, model, tiny.weights);
  for (const size_t count : {1, 30, 200}) {  // in the last case the cache grows several times
    const auto sources = random_sources(count, 15);
    const SearchOptions config{.beam = 5, .n_best = 3, .max_extra = 5};
    expect_same(plain.translate(sources, config), filled.translate(sources, config), "filled up");
  }
}

TEST(BatchDecoder, TheCacheGrowsWithoutChangingTheResult) {
  // 200 sentences x 8 hypotheses x 21 pieces pass the first capacity of the cache several times.
  TinyModel tiny(1);
  const auto sources = random_sources(200, 15);
  const SearchOptions config{.beam = 8, .max_extra = 5};
  BatchDecoder together(*tiny.backend, tiny.model, tiny.weights);
  const auto all = together.translate(sources, config);
  BatchDecoder alone(*tiny.backend, tiny.model, tiny.weights);
  std::vector<std::vector<Hypothesis>> one_by_one;
  for (size_t s = 0; s < sources.size(); ++s) {
    one_by_one.push_back(alone.translate(std::span(sources).subspan(s, 1), config).front());
  }
  expect_same(one_by_one, all, "one by one");
}

}  // namespace
}  // namespace tandem::decode
