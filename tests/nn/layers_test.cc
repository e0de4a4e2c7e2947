#include "layer_check.h"
#include "nn/cross_attention.h"
#include "nn/embedding.h"
#include "nn/feed_forward.h"
#include "nn/linear.h"
#include "nn/loss.h"
#include "nn/residual_norm.h"
#include "nn/self_attention.h"

namespace tandem::testing {
namespace {

constexpr int64_t kWidth = 8;
constexpr int kHeads = 2;

TEST(LinearLayer, SeveralPartsAreOneProduct) {
  LayerCheck check;
  const std::string names[] = {"a", "b", "c"};
  const nn::Linear linear = nn::Linear::make(check.layout, names, 8, kWidth, true);
  const View x = check.values(5, kWidth), dx = check.values(5, kWidth);
  const View y = check.values(5, 24), weights = check.values(5, 24);
  check.run(
      [&] {
        linear.forward(check.context(), y, x);
        return LayerCheck::weighted_sum(y, weights);
      },
      [&] {
        linear.backward_weight(check.context(), weights, x, Side::source);
        linear.backward_input(check.context(), dx, weights);
      },
      {{"x", x, dx}});
}

TEST(LinearLayer, WrongShapesAreRefused) {
  LayerCheck check;
  const nn::Linear linear = nn::Linear::make(check.layout, "a", 16, kWidth, false);
  EXPECT_THROW(linear.forward(check.context(), check.values(5, 16), check.values(5, 4)), Error);
  EXPECT_THROW(linear.forward(check.context(), check.values(4, 16), check.values(5, kWidth)), Error);
  EXPECT_THROW(linear.backward_weight(check.context(), check.values(5, 16), check.values(4, kWidth), Side::source),
               Error);
}

TEST(EmbeddingLayer, Gradients) {
  LayerCheck check;
  const nn::Embedding embedding{check.layout.add_matrix("table", 7, kWidth, Init::embedding)};
  const View tokens = check.indices({3, 1, 3, 6, 0}), position = check.indices({0, 1, 2, 0, 1});
  const backend::TokenOrder order{check.indices({4, 1, 0, 2, 3}), check.indices({0, 1, 3, 6}),
                                  check.indices({0, 1, 2, 4, 5})};
  const View positions = check.values(4, kWidth), weights = check.values(5, kWidth), x = check.values(5, kWidth);
  const backend::Dropout dropout = check.context().dropout(0.4F, 9, Side::target);
  check.run(
      [&] {
        embedding.forward(check.context(), x, tokens, position, positions, dropout);
        return LayerCheck::weighted_sum(x, weights);
      },
      [&] {
        nn::Embedding::backward(check.context(), check.context().gradient(embedding.table), weights, order, dropout);
      },
      {});
}

TEST(EmbeddingLayer, PositionsAreSinusoidHalves) {
  const std::vector<double> table = nn::sinusoid_positions(3, 8);
  EXPECT_DOUBLE_EQ(table[0], 0);
  EXPECT_DOUBLE_EQ(table[4], 1);
  EXPECT_DOUBLE_EQ(table[16], std::sin(2.0));
  EXPECT_DOUBLE_EQ(table[16 + 4], std::cos(2.0));
  EXPECT_NEAR(table[16 + 3], std::sin(2.0 / 10000.0), 1e-15);  // the last rate is exactly 1 / 10000
  EXPECT_NEAR(table[16 + 1], std::sin(2.0 * std::pow(10000.0, -1.0 / 3)), 1e-15);
}

// The product that a sublayer leaves to its caller.
void finish(LayerCheck& check, const View& branch, const nn::PendingProduct& last) {
  last.linear.forward(check.context(), branch, last.x);
}

class FeedForwardLayer : public ::testing::TestWithParam<backend::Activation> {};

TEST_P(FeedForwardLayer, Gradients) {
  for (const bool accumulate : {false, true}) {
    LayerCheck check;
    const nn::FeedForward layer = nn::FeedForward::make(check.layout, "ffn", kWidth, 16, GetParam());
    const View x = check.values(5, kWidth), dx = check.values(5, kWidth);
    const View weights = check.values(5, kWidth), branch = check.values(5, kWidth);
    const auto forward = [&] {
      const auto saved = layer.forward(check.context(), x, check.context().dropout(0.3F, 4, Side::source));
      finish(check, branch, layer.output(saved));
      return saved;
    };
    // With `accumulate` the input is also added to the loss, times the weights.
    check.run(
        [&] {
          forward();
          return LayerCheck::weighted_sum(branch, weights) + (accumulate ? LayerCheck::weighted_sum(x, weights) : 0);
        },
        [&] {
          const nn::FeedForward::Saved saved = forward();
          std::copy_n(weights.host<double>(), dx.size(), dx.host<double>());
          layer.backward(check.context(), saved, dx, weights, accumulate);
        },
        {{"x", x, dx}});
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, FeedForwardLayer,
                         ::testing::Values(backend::Activation::relu, backend::Activation::gelu,
                                           backend::Activation::swish));

backend::AttentionShape ragged(LayerCheck& check, bool causal, std::vector<int32_t> queries,
                               std::vector<int32_t> keys) {
  const auto longest = [](const std::vector<int32_t>& starts) {
    int64_t most = 0;
    for (size_t i = 1; i < starts.size(); ++i) {
      most = std::max<int64_t>(most, starts[i] - starts[i - 1]);
    }
    return most;
  };
  return {.heads = kHeads,
          .causal = causal,
          .query_starts = check.indices(queries),
          .key_starts = check.indices(keys),
          .longest_query = longest(queries),
          .longest_key = longest(keys),
          .dropout = check.context().dropout(0.3F, 21, Side::target)};
}

TEST(SelfAttentionLayer, Gradients) {
  for (const bool causal : {false, true}) {
    LayerCheck check;
    const nn::SelfAttention layer = nn::SelfAttention::make(check.layout, "self", kWidth, true);
    const backend::AttentionShape shape = ragged(check, causal, {0, 4, 5, 8}, {0, 4, 5, 8});
    const View x = check.values(8, kWidth), dx = check.values(8, kWidth);
    const View weights = check.values(8, kWidth), branch = check.values(8, kWidth);
    check.run(
        [&] {
          finish(check, branch, layer.output(layer.forward(check.context(), x, shape)));
          return LayerCheck::weighted_sum(branch, weights);
        },
        [&] {
          const nn::SelfAttention::Saved saved = layer.forward(check.context(), x, shape);
          layer.backward(check.context(), saved, dx, weights, false);
        },
        {{"x", x, dx}});
  }
}

TEST(CrossAttentionLayer, Gradients) {
  LayerCheck check;
  const nn::CrossAttention layer = nn::CrossAttention::make(check.layout, "cross", kWidth, true);
  const backend::AttentionShape shape = ragged(check, false, {0, 3, 4}, {0, 2, 7});
  const View x = check.values(4, kWidth), dx = check.values(4, kWidth);
  const View k = check.values(7, kWidth), v = check.values(7, kWidth);
  const View dk = check.values(7, kWidth), dv = check.values(7, kWidth);
  const View weights = check.values(4, kWidth), branch = check.values(4, kWidth);
  check.run(
      [&] {
        finish(check, branch, layer.output(layer.forward(check.context(), x, k, v, shape)));
        return LayerCheck::weighted_sum(branch, weights);
      },
      [&] {
        const nn::CrossAttention::Saved saved = layer.forward(check.context(), x, k, v, shape);
        layer.backward(check.context(), saved, dx, dk, dv, weights, false);
      },
      {{"x", x, dx}, {"k", k, dk}, {"v", v, dv}});
}

TEST(ResidualNormLayer, Gradients) {
  for (const bool with_branch : {false, true}) {
    LayerCheck check;
    const nn::ResidualNorm norm = nn::ResidualNorm::make(check.layout, "norm", kWidth);
    const nn::Linear last = with_branch ? nn::Linear::make(check.layout, "last", kWidth, 3, true) : nn::Linear{};
    const View x = check.values(5, kWidth), dx = check.values(5, kWidth);
    const View y = check.values(5, 3), dy = check.values(5, 3), room = check.values(5, kWidth);
    const View dbranch = with_branch ? check.values(5, kWidth) : View{};
    const View weights = check.values(5, kWidth), sum_weights = check.values(5, kWidth);
    const auto forward = [&] {
      const nn::Context context = check.context();
      return with_branch ? norm.forward(context, x, {last, y}, room, context.dropout(0.3F, 2, Side::source))
                         : norm.forward(context, x);
    };
    std::vector<LayerCheck::Input> inputs = {{"x", x, dx}};
    if (with_branch) {
      inputs.push_back({"y", y, dy});
    }
    check.run(
        [&] {
          const nn::ResidualNorm::Saved saved = forward();
          return LayerCheck::weighted_sum(saved.normed, weights) + LayerCheck::weighted_sum(saved.sum, sum_weights);
        },
        [&] {
          norm.backward(check.context(), forward(), dx, dbranch, weights, sum_weights);
          if (with_branch) {
            last.backward_weight(check.context(), dbranch, y, Side::source);
            last.backward_input(check.context(), dy, dbranch);
          }
        },
        inputs);
  }
}

TEST(LossLayer, GradientsInChunks) {
  LayerCheck check;
  nn::OutputLoss loss{check.layout.add_matrix("output", 6, kWidth, Init::embedding), 2};
  const View hidden = check.values(5, kWidth), dhidden = check.values(5, kWidth);
  const View labels = check.indices({2, 5, -1, 0, 2});
  backend::LossTotals totals;
  const auto evaluate = [&] {
    totals = {};
    loss.evaluate(check.context(), &totals, hidden, labels, 0.1F);
    return totals.smoothed;
  };
  check.run([&] { return evaluate() * static_cast<double>(check.state.loss_scale); },
            [&] {
              backend::LossTotals trained;
              loss.train(check.context(), &trained, dhidden, hidden, labels, 0.1F);
              EXPECT_NEAR(trained.smoothed, evaluate(), 1e-12);
              EXPECT_NEAR(trained.nll, totals.nll, 1e-12);
            },
            {{"hidden", hidden, dhidden}});
  EXPECT_EQ(totals.tokens, 4);

  const double in_chunks = evaluate();
  loss.chunk_rows = 100;
  EXPECT_NEAR(evaluate(), in_chunks, 1e-12);
  EXPECT_GT(in_chunks, 1);
}

}  // namespace
}  // namespace tandem::testing
