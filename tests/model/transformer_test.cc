// Properties of the whole model that hold whatever the numbers are.
#include "model/transformer.h"

#include "test_model.h"

namespace tandem::testing {
namespace {

model::ModelConfig post_config() {
  model::ModelConfig config = tiny_config();
  config.norm = model::NormPlace::post;
  config.activation = backend::Activation::gelu;
  config.tie = model::Tie::none;
  config.target_vocabulary = 10;
  config.attention_bias = true;
  return config;
}

uint32_t tokens_in(const Sentences& sentences, uint32_t added) {
  uint32_t count = 0;
  for (const auto& sentence : sentences) {
    count += static_cast<uint32_t>(sentence.size()) + added;
  }
  return count;
}

TEST(Transformer, ParametersAreCountedWithoutTheModel) {
  const auto backend = backend::make_cpu_backend(1);
  for (const model::Tie tie : {model::Tie::all, model::Tie::output, model::Tie::none}) {
    model::ModelConfig config = model::preset("tiny");
    config.source_vocabulary = config.target_vocabulary = 50;
    config.decoder_layers = 3;
    config.tie = tie;
    config.attention_bias = tie == model::Tie::none;
    EXPECT_EQ(model::parameter_count(config), model::Transformer(*backend, config).parameters().count());
  }
}

TEST(Transformer, TwoMicroBatchesAddUpToOne) {
  for (const model::ModelConfig& config : {tiny_config(), post_config()}) {
    const Sentences source = test_source(), target = test_target();
    TestModel whole(config, DType::f64), parts(config, DType::f64);
    TestBatch all(source, target);
    const backend::LossTotals expected = whole.train(all);

    backend::LossTotals sum;
    const size_t cut = 3;
    const Sentences first_source(source.begin(), source.begin() + cut), rest_source(source.begin() + cut, source.end());
    const Sentences first_target(target.begin(), target.begin() + cut), rest_target(target.begin() + cut, target.end());
    TestBatch first(first_source, first_target), rest(rest_source, rest_target);
    for (TestBatch* part : {&first, &rest}) {
      const backend::LossTotals totals = parts.train(*part);
      sum.smoothed += totals.smoothed;
      sum.correct += totals.correct;
      sum.tokens += totals.tokens;
      parts.state.first_source += tokens_in(first_source, 0);
      parts.state.first_target += tokens_in(first_target, 1);
    }
    EXPECT_NEAR(sum.smoothed, expected.smoothed, 1e-11);
    EXPECT_EQ(sum.tokens, expected.tokens);
    EXPECT_EQ(sum.correct, expected.correct);
    const std::vector<double> a = to_doubles(parts.gradients), b = to_doubles(whole.gradients);
    EXPECT_TRUE(close(std::span(a), std::span(b), 1e-13, 1e-11));
  }
}

TEST(Transformer, DropoutFollowsTheStep) {
  TestModel tested(tiny_config(), DType::f64);
  TestBatch batch(test_source(), test_target());
  const double loss = tested.train(batch).smoothed;
  EXPECT_EQ(tested.train(batch).smoothed, loss);
  ++tested.state.step;
  EXPECT_NE(tested.train(batch).smoothed, loss);
}

TEST(Transformer, EvaluationIsTrainingWithoutDropout) {
  model::ModelConfig config = tiny_config();
  TestModel with_dropout(config, DType::f64);
  config.dropout = config.attention_dropout = config.activation_dropout = 0;
  TestModel without(config, DType::f64);
  TestBatch batch(test_source(), test_target());
  backend::LossTotals evaluated;
  with_dropout.model.evaluate(with_dropout.weights, batch.view(nullptr), 0.1F, &evaluated, with_dropout.arena);
  const backend::LossTotals trained = without.train(batch);
  EXPECT_NEAR(evaluated.smoothed, trained.smoothed, 1e-11);
  EXPECT_NEAR(evaluated.nll, trained.nll, 1e-11);
  EXPECT_EQ(evaluated.tokens, trained.tokens);
  EXPECT_GT(std::fabs(with_dropout.train(batch).smoothed - evaluated.smoothed), 1e-3);
}

// Each sentence is a hypothesis. Its cache rows are scattered: step p writes the rows [p * R, p * R + R).
TEST(Transformer, DecodingStepByStepGivesTheTeacherForcedLogits) {
  for (const model::ModelConfig& config : {tiny_config(), post_config()}) {
    TestModel tested(config, DType::f64);
    const Sentences source = test_source(), target = {{5, 6, 4}, {7, 3, 8}, {4, 4, 8}, {9, 5, 5}};
    TestBatch batch(source, target);
    const auto expected = to_doubles(tested.model.logits(tested.weights, batch.view(nullptr), tested.arena));
    const model::Batch packed = batch.view(nullptr);
    const int64_t hypotheses = static_cast<int64_t>(target.size()), steps = 4, layers = config.decoder_layers;

    const View memory = tested.model.encode(tested.weights, packed.source, tested.arena);
    EXPECT_EQ(memory.cols, layers * 2 * config.width);
    std::vector<View> keys, values;
    for (int64_t l = 0; l < layers; ++l) {
      keys.push_back(tested.arena.take(DType::f64, hypotheses * steps, config.width));
      values.push_back(tested.arena.take(DType::f64, hypotheses * steps, config.width));
    }
    std::vector<int32_t> first, length;
    const int32_t* starts = packed.source.starts.host<int32_t>();
    for (int64_t i = 0; i < hypotheses; ++i) {
      first.push_back(starts[i]);
      length.push_back(starts[i + 1] - starts[i]);
    }
    for (int64_t p = 0; p < steps; ++p) {
      std::vector<int32_t> tokens, position, index, self_length;
      for (int64_t i = 0; i < hypotheses; ++i) {
        tokens.push_back(p == 0 ? 2 : target[static_cast<size_t>(i)][static_cast<size_t>(p - 1)]);
        position.push_back(static_cast<int32_t>(p));
        self_length.push_back(static_cast<int32_t>(p + 1));
        for (int64_t past = 0; past < steps; ++past) {
          index.push_back(static_cast<int32_t>(past * hypotheses + i));
        }
      }
      const model::DecodeStep step{.tokens = TestBatch::row(tokens),
                                   .position = TestBatch::row(position),
                                   .keys = keys,
                                   .values = values,
                                   .write_row = p * hypotheses,
                                   .self_index = TestBatch::row(index).reshape(hypotheses, steps),
                                   .self_length = TestBatch::row(self_length),
                                   .memory = memory,
                                   .memory_first = TestBatch::row(first),
                                   .memory_length = TestBatch::row(length)};
      const auto logits = to_doubles(tested.model.decode(tested.weights, step, tested.arena));
      const auto v = static_cast<size_t>(config.target_vocabulary);
      for (size_t i = 0; i < static_cast<size_t>(hypotheses); ++i) {
        const size_t row = i * static_cast<size_t>(steps) + static_cast<size_t>(p);
        EXPECT_TRUE(close(std::span(logits).subspan(i * v, v), std::span(expected).subspan(row * v, v), 1e-11, 1e-11))
            << "hypothesis " << i << " position " << p;
      }
    }
  }
}

double cosine(std::span<const double> a, std::span<const double> b) {
  const double ab = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  const double aa = std::inner_product(a.begin(), a.end(), a.begin(), 0.0);
  const double bb = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
  return ab / std::sqrt(aa * bb);
}

TEST(Transformer, NarrowTypesStayCloseToDouble) {
  TestModel exact(tiny_config(), DType::f64), single(tiny_config(), DType::f32), half(tiny_config(), DType::bf16);
  TestBatch batch(test_source(), test_target());
  const backend::LossTotals expected = exact.train(batch), single_loss = single.train(batch),
                            half_loss = half.train(batch);
  EXPECT_NEAR(single_loss.smoothed / expected.smoothed, 1, 1e-6);
  EXPECT_NEAR(half_loss.smoothed / expected.smoothed, 1, 0.02);
  const std::vector<double> g64 = to_doubles(exact.gradients), g32 = to_doubles(single.gradients);
  const std::vector<double> g16 = to_doubles(half.gradients);
  EXPECT_TRUE(close(std::span(g32), std::span(g64), 1e-5, 1e-4));
  EXPECT_GT(cosine(g16, g64), 0.998);
}

TEST(Transformer, NothingIsAllocatedAfterTheFirstStep) {
  TestModel tested(tiny_config(), DType::f32);
  Sentences source, target;
  for (int i = 0; i < 400; ++i) {  // more than one piece of the arena
    source.push_back(test_source()[static_cast<size_t>(i) % 4]);
    target.push_back(test_target()[static_cast<size_t>(i) % 4]);
  }
  TestBatch batch(source, target), smaller(test_source(), test_target());
  tested.train(batch);
  EXPECT_GT(tested.arena.allocations(), 1u);
  tested.arena.reset();
  const size_t before = tested.arena.allocations();
  tested.train(batch);
  tested.train(smaller);
  tested.train(batch);
  EXPECT_EQ(tested.arena.allocations(), before);
}

TEST(Transformer, WrongArgumentsAreRefused) {
  TestModel tested(tiny_config(), DType::f32);
  TestBatch batch(test_source(), test_target());
  backend::LossTotals totals;
  EXPECT_THROW(tested.model.train(tested.weights, tested.gradients, batch.view(nullptr), 0, &totals, tested.arena),
               Error);
  EXPECT_THROW(tested.model.train(tested.weights, tested.gradients.slice_cols(0, 8), batch.view(&tested.state), 0,
                                  &totals, tested.arena),
               Error);
  TestBatch long_batch({std::vector<int32_t>(17, 4)}, {{5}});
  EXPECT_THROW(tested.model.logits(tested.weights, long_batch.view(nullptr), tested.arena), Error);
  TestModel wide(tiny_config(), DType::f64);
  EXPECT_THROW(tested.model.logits(wide.weights, batch.view(nullptr), tested.arena), Error);
}

}  // namespace
}  // namespace tandem::testing
