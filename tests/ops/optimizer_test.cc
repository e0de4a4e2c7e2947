#include "ops/op_test.h"

namespace tandem::backend {
namespace {

using testing::Bound;
using testing::Device;
using testing::Lab;
using testing::Room;

class OptimizerOps : public testing::OpTest {};

constexpr int64_t kSizes[] = {1, 3, 4, 37, 1000, 100003, 3000000};

// Sums over millions are made in double, whatever the elements are.
constexpr Bound kNorm{.absolute = 0, .relative = 1e-6};
constexpr Bound kUpdated{.absolute = 2e-6, .relative = 1e-5};

void give(Lab& lab, const UpdateState& update) {
  lab.give("norm", {update.norm}, kNorm);
  lab.give("counts", {static_cast<double>(update.finite), static_cast<double>(update.updates)}, testing::kExact);
  lab.give("factors",
           {static_cast<double>(update.clip_factor), static_cast<double>(update.bias_correction1),
            static_cast<double>(update.bias_correction2), static_cast<double>(update.average_decay)},
           kNorm);
}

TEST_F(OptimizerOps, NormInOnePiece) {
  for (const int64_t n : kSizes) {
    for (const float max_norm : {0.0F, 0.5F, 1e6F}) {
      if (leaves_out_on_a_cpu(8 * static_cast<double>(n))) {
        continue;
      }
      const UpdateSettings settings{
          .adam = {.beta1 = 0.9F, .beta2 = 0.98F}, .max_norm = max_norm, .average_decay = 0.999F};
      expect_formula(
          [&](Lab& lab) {
            UpdateState* update = lab.put_struct(UpdateState{.updates = 41});
            for (uint32_t t = 0; t < 2; ++t) {
              testing::prepare_update(lab.backend(), update, lab.put_sum(), lab.m().random(1, n, t), settings);
              give(lab, lab.get(update));
            }
          },
          fmt::format("{} elements, most {}", n, max_norm));
    }
  }
}

TEST_F(OptimizerOps, NormInPieces) {
  for (const int64_t n : kSizes) {
    expect_formula(
        [&](Lab& lab) {
          const View x = lab.m().random(1, n, 1), sums = lab.put(std::vector<double>(3, -1), 1, 3);
          for (int64_t i = 0; i < 3; ++i) {
            lab.backend().run(op::SumOfSquares{.sum = sums.slice_cols(i, 1),
                                               .x = x.slice_cols(n * i / 3, n * (i + 1) / 3 - n * i / 3)});
          }
          UpdateState* update = lab.put_struct(UpdateState{.updates = 2});
          lab.backend().run(op::PrepareUpdate{
              .update = update, .sums = sums, .settings = {.adam = {}, .max_norm = 0.5F, .average_decay = 0.9F}});
          lab.give("sums", lab.values(sums), kNorm);
          give(lab, lab.get(update));
        },
        fmt::format("{} elements", n));
  }
}

TEST_F(OptimizerOps, OneBadGradientAnywhereShows) {
  for (const Device& device : testing::devices()) {
    for (const size_t place : {size_t{0}, size_t{65535}, size_t{70000}, size_t{200016}}) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        Lab lab(*device.backend, device.types);
        auto gradients = testing::Matrix<float>::random(1, 200017, 1);
        gradients.data[place] = bad;
        UpdateState* update = lab.put_struct(UpdateState{.updates = 5});
        testing::prepare_update(lab.backend(), update, lab.put_sum(), lab.m().put(gradients),
                                {.adam = {}, .max_norm = 1});
        EXPECT_EQ(lab.get(update).finite, 0U) << place;
        EXPECT_EQ(lab.get(update).updates, 5U) << place;
      }
    }
    Lab lab(*device.backend, device.types);
    UpdateState* update = lab.put_struct(UpdateState{.updates = 5});
    const View sums = lab.put(std::vector<double>{1, std::nan(""), 2}, 1, 3);
    lab.backend().run(op::PrepareUpdate{.update = update, .sums = sums, .settings = {}});
    EXPECT_EQ(lab.get(update).finite, 0U) << "in pieces";
    EXPECT_EQ(lab.get(update).updates, 5U) << "in pieces";
  }
}

// Their squares overflow a float, not the sum.
TEST_F(OptimizerOps, LargeGradientsAreFinite) {
  const auto large = testing::Matrix<float>::filled(1, 1000, 3e38);
  expect_formula(
      [&](Lab& lab) {
        UpdateState* update = lab.put_struct(UpdateState{});
        testing::prepare_update(lab.backend(), update, lab.put_sum(), lab.m().put(large), {});
        give(lab, lab.get(update));
      },
      "large");
}

// Some updates of a model of n weights, as a step does them. With a margin, the flat buffers begin at odd addresses.
struct Update {
  Lab& lab;
  int64_t n;
  UpdateSettings settings = {};
  int64_t margin = 0;
  Room masters = lab.m().random(1, n, 1, 1, margin), m = lab.m().zeros(1, n), v = lab.m().zeros(1, n),
       average = lab.m().random(1, n, 3, 1, margin), compute = lab.of(DType::bf16).poisoned(1, n, margin);
  UpdateState* update = lab.put_struct(UpdateState{});
  const StepState* state = lab.put_struct(StepState{.learning_rate = 0.01F});

  void run(const View& gradients, bool copy) {
    testing::prepare_update(lab.backend(), update, lab.put_sum(), gradients, settings);
    lab.backend().run(op::Adam{.masters = masters,
                               .m = m,
                               .v = v,
                               .compute = copy ? compute.inner : View{},
                               .gradients = gradients,
                               .settings = settings.adam,
                               .state = state,
                               .update = update});
    lab.backend().run(op::MovingAverage{.average = average, .masters = masters, .update = update});
  }
  void give(const Bound& bound = kUpdated) {
    lab.give("masters", masters, bound);
    lab.give("m", m, bound);
    lab.give("v", v, bound);
    lab.give("average", average, bound);
  }
};

TEST_F(OptimizerOps, AdamAndAverage) {
  const AdamSettings settings[] = {{},
                                   {.beta1 = 0.9F, .beta2 = 0.98F, .epsilon = 1e-9F},
                                   {.weight_decay = 0.1F},
                                   {.beta2 = 0.98F, .weight_decay = 0.1F, .decoupled = true}};
  for (const int64_t n : kSizes) {
    for (const AdamSettings& adam : settings) {
      if (leaves_out(30 * static_cast<double>(n))) {
        continue;
      }
      expect_formula(
          [&](Lab& lab) {
            Update update{lab, n, {.adam = adam, .max_norm = 0.5F, .average_decay = 0.99F}};
            const bool copy = lab.types().m == DType::f32;  // masters in f64 have none
            for (uint32_t t = 0; t < 3; ++t) {
              update.run(lab.m().random(1, n, 10 + t), copy);
            }
            const std::vector<double> masters = lab.values(update.masters.whole);
            const std::vector<bf16> compute = lab.values<bf16>(update.compute);
            for (size_t i = 0; copy && i < masters.size(); ++i) {
              ASSERT_EQ(compute[i].bits, bf16(static_cast<float>(masters[i])).bits) << i;
            }
            update.give();
            give(lab, lab.get(update.update));
          },
          fmt::format("{} weights, decay {}", n, adam.weight_decay));
    }
  }
}

TEST_F(OptimizerOps, WithoutACopy) {
  expect_formula(
      [](Lab& lab) {
        Update update{lab, 1000};
        update.run(lab.m().random(1, 1000, 10), false);
        update.give();
      },
      "no bf16 copy");
}

TEST_F(OptimizerOps, ABadGradientChangesNothing) {
  auto gradients = testing::Matrix<float>::random(1, 1000, 1);
  gradients.data[77] = std::numeric_limits<float>::quiet_NaN();
  expect_formula(
      [&](Lab& lab) {
        Update update{lab, 1000};
        update.run(lab.m().put(gradients), false);
        update.give(testing::kExact);
        lab.give("updates", {static_cast<double>(lab.get(update.update).updates)}, testing::kExact);
      },
      "NaN");
}

TEST_F(OptimizerOps, AnyAddress) {
  expect_formula(
      [](Lab& lab) {
        Update update{.lab = lab, .n = 1000, .margin = 1};
        update.run(lab.m().random(1, 1000, 4, 1, 1), lab.types().m == DType::f32);
        update.give();
      },
      "odd address");
}

}  // namespace
}  // namespace tandem::backend
