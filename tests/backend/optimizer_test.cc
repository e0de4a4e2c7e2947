#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::append;
using testing::Matrix;
using testing::Results;

UpdateSettings clipping(float max_norm) { return {.adam = {}, .max_norm = max_norm}; }

TEST(GradientNorm, HandMadeValuesAndClipping) {
  const auto backend = make_cpu_backend(2);
  Matrix<float> gradients(1, 3);
  gradients.data = {3, 0, -4};
  UpdateState norm;
  backend->run(op::GradientNorm{.update = &norm, .gradients = gradients.view(), .settings = clipping(0)});
  EXPECT_EQ(norm.norm, 5);
  EXPECT_EQ(norm.clip_factor, 1);
  EXPECT_EQ(norm.finite, 1U);
  backend->run(op::GradientNorm{.update = &norm, .gradients = gradients.view(), .settings = clipping(2)});
  EXPECT_FLOAT_EQ(norm.clip_factor, 0.4F);
  backend->run(op::GradientNorm{.update = &norm, .gradients = gradients.view(), .settings = clipping(6)});
  EXPECT_EQ(norm.clip_factor, 1);
}

TEST(GradientNorm, OneBadElementAnywhereShows) {
  const auto backend = make_cpu_backend(2);
  for (const size_t place : {size_t{0}, size_t{65535}, size_t{70000}, size_t{200016}}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      auto gradients = Matrix<float>::random(1, 200017, 1);
      gradients.data[place] = bad;
      UpdateState norm;
      backend->run(op::GradientNorm{.update = &norm, .gradients = gradients.view(), .settings = clipping(1)});
      EXPECT_EQ(norm.finite, 0U) << place;
    }
  }
  auto large = Matrix<float>::filled(1, 1000, 3e38);  // its square overflows a float, not the sum
  UpdateState norm;
  backend->run(op::GradientNorm{.update = &norm, .gradients = large.view(), .settings = clipping(0)});
  EXPECT_EQ(norm.finite, 1U);
  EXPECT_NEAR(norm.norm / (3e38 * std::sqrt(1000.0)), 1, 1e-6);
}

TEST(GradientNorm, SameBitsAtAnyThreadCount) {
  for (const int64_t n : {1, 17, 65536, 300001}) {
    testing::expect_same_bits_at_any_thread_count([n](Backend& backend) {
      auto gradients = Matrix<float>::random(1, n, 1);
      UpdateState norm;
      backend.run(op::GradientNorm{.update = &norm, .gradients = gradients.view(), .settings = clipping(0.5F)});
      return Results{norm.norm, static_cast<double>(norm.clip_factor)};
    });
  }
}

TEST(GradientNorm, InPieces) {
  const auto backend = make_cpu_backend(2);
  auto gradients = Matrix<float>::random(1, 300001, 1);
  UpdateState whole, pieces;
  backend->run(op::GradientNorm{.update = &whole, .gradients = gradients.view(), .settings = clipping(0.5F)});
  double sums[3];
  int64_t begin = 0;
  for (int i = 0; i < 3; ++i) {
    const int64_t count = i == 2 ? 300001 - begin : 70001;
    backend->run(op::SumOfSquares{.sum = host_view(sums + i, 1, 1), .x = gradients.view().slice_cols(begin, count)});
    begin += count;
  }
  backend->run(op::PrepareUpdate{.update = &pieces, .sums = host_view(sums, 1, 3), .settings = clipping(0.5F)});
  EXPECT_NEAR(pieces.norm / whole.norm, 1, 1e-12);
  EXPECT_FLOAT_EQ(pieces.clip_factor, whole.clip_factor);
  EXPECT_EQ(pieces.updates, 1U);
  sums[1] = std::numeric_limits<double>::quiet_NaN();
  backend->run(op::PrepareUpdate{.update = &pieces, .sums = host_view(sums, 1, 3), .settings = clipping(0.5F)});
  EXPECT_EQ(pieces.finite, 0U);
  EXPECT_EQ(pieces.updates, 1U);
}

struct Flat {
  explicit Flat(int64_t n)
      : masters(Matrix<float>::random(1, n, 1)),
        m(1, n),
        v(1, n),
        gradients(Matrix<float>::random(1, n, 2)),
        compute(1, n) {}

  Matrix<float> masters, m, v, gradients;
  Matrix<bf16> compute;
};

UpdateState update_at(int t, const AdamSettings& settings) {
  UpdateState update;
  update.bias_correction1 = static_cast<float>(1 - std::pow(static_cast<double>(settings.beta1), t));
  update.bias_correction2 = static_cast<float>(1 - std::pow(static_cast<double>(settings.beta2), t));
  return update;
}

// torch.optim.Adam / AdamW, one element, written as in PyTorch's single-tensor implementation.
struct Reference {
  double w, m = 0, v = 0;

  void update(double g, const AdamSettings& s, double rate, int t) {
    const double beta1 = static_cast<double>(s.beta1), beta2 = static_cast<double>(s.beta2);
    const double decay = static_cast<double>(s.weight_decay);
    if (s.decoupled) {
      w *= 1 - rate * decay;
    } else {
      g += decay * w;
    }
    m += (g - m) * (1 - beta1);
    v = v * beta2 + (1 - beta2) * g * g;
    const double step_size = rate / (1 - std::pow(beta1, t));
    const double denominator = std::sqrt(v) / std::sqrt(1 - std::pow(beta2, t)) + static_cast<double>(s.epsilon);
    w -= step_size * m / denominator;
  }
};

TEST(Adam, FollowsPyTorchsFormulas) {
  const auto backend = make_cpu_backend(2);
  const AdamSettings settings[] = {{},
                                   {.beta1 = 0.9F, .beta2 = 0.98F, .epsilon = 1e-9F},
                                   {.weight_decay = 0.1F},
                                   {.beta2 = 0.98F, .weight_decay = 0.1F, .decoupled = true}};
  for (const AdamSettings& setting : settings) {
    Flat flat(37);
    std::vector<Reference> reference;
    for (const float w : flat.masters.data) {
      reference.push_back({static_cast<double>(w)});
    }
    for (int t = 1; t <= 10; ++t) {
      flat.gradients = Matrix<float>::random(1, 37, static_cast<uint32_t>(t) + 10);
      const StepState state{.learning_rate = 0.01F};
      UpdateState update = update_at(t, setting);
      update.clip_factor = 0.5F;
      backend->run(op::Adam{.masters = flat.masters.view(),
                            .m = flat.m.view(),
                            .v = flat.v.view(),
                            .compute = flat.compute.view(),
                            .gradients = flat.gradients.view(),
                            .settings = setting,
                            .state = &state,
                            .update = &update});
      for (size_t i = 0; i < 37; ++i) {
        reference[i].update(0.5 * static_cast<double>(flat.gradients.data[i]), setting, static_cast<double>(0.01F), t);
      }
    }
    for (size_t i = 0; i < 37; ++i) {
      EXPECT_NEAR(static_cast<double>(flat.masters.data[i]), reference[i].w, 2e-6);
      EXPECT_NEAR(static_cast<double>(flat.v.data[i]), reference[i].v, 1e-6);
      EXPECT_EQ(flat.compute.data[i].bits, bf16(flat.masters.data[i]).bits);
    }
  }
}

TEST(Adam, LeavesEverythingWhereTheGradientIsNotFinite) {
  const auto backend = make_cpu_backend(2);
  Flat flat(37);
  const std::vector<float> before = flat.masters.data;
  std::vector<float> average(37, 0.5F);
  UpdateState norm = update_at(1, {});
  norm.finite = 0;
  norm.average_decay = 0.9F;
  const StepState state{.learning_rate = 0.01F};
  backend->run(op::Adam{.masters = flat.masters.view(),
                        .m = flat.m.view(),
                        .v = flat.v.view(),
                        .gradients = flat.gradients.view(),
                        .settings = {},
                        .state = &state,
                        .update = &norm});
  backend->run(
      op::MovingAverage{.average = host_view(average.data(), 1, 37), .masters = flat.masters.view(), .update = &norm});
  EXPECT_EQ(flat.masters.data, before);
  EXPECT_EQ(flat.m.data, std::vector<float>(37));
  EXPECT_EQ(average, std::vector<float>(37, 0.5F));
}

TEST(Adam, SameBitsAtAnyThreadCount) {
  testing::expect_same_bits_at_any_thread_count([](Backend& backend) {
    Flat flat(100003);
    const UpdateState norm = update_at(1, {});
    const StepState state{.learning_rate = 0.01F};
    backend.run(op::Adam{.masters = flat.masters.view(),
                         .m = flat.m.view(),
                         .v = flat.v.view(),
                         .compute = flat.compute.view(),
                         .gradients = flat.gradients.view(),
                         .settings = {},
                         .state = &state,
                         .update = &norm});
    Results results;
    append(results, flat.masters.data);
    append(results, flat.v.data);
    append(results, flat.compute.data);
    return results;
  });
}

TEST(MovingAverage, HandMadeValues) {
  const auto backend = make_cpu_backend(2);
  std::vector<double> average = {1, 2, 3}, masters = {3, 2, -1};
  const UpdateState norm{.average_decay = 0.75F};
  backend->run(op::MovingAverage{
      .average = host_view(average.data(), 1, 3), .masters = host_view(masters.data(), 1, 3), .update = &norm});
  EXPECT_EQ(average, (std::vector<double>{1.5, 2, 2}));
}

}  // namespace
}  // namespace tandem::backend
