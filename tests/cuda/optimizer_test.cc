#include "cuda/device.h"

namespace tandem::backend {
namespace {

using testing::Lab;
using testing::Results;
using testing::Room;

class CudaOptimizer : public testing::CudaTest {};

constexpr int64_t kSizes[] = {1, 3, 4, 37, 1000, 100003, 3000000};

void append(Results& results, const UpdateState& update) {
  results.insert(results.end(),
                 {update.norm, static_cast<double>(update.clip_factor), static_cast<double>(update.finite),
                  static_cast<double>(update.updates), static_cast<double>(update.bias_correction1),
                  static_cast<double>(update.bias_correction2), static_cast<double>(update.average_decay)});
}

TEST_F(CudaOptimizer, GradientNorm) {
  for (const int64_t n : kSizes) {
    for (const float max_norm : {0.0F, 0.5F, 1e6F}) {
      const UpdateSettings settings{
          .adam = {.beta1 = 0.9F, .beta2 = 0.98F}, .max_norm = max_norm, .average_decay = 0.999F};
      expect_twins(
          [&](Lab& lab) {
            UpdateState* update = lab.put_struct(UpdateState{.updates = 41});
            Results results;
            for (int t = 0; t < 2; ++t) {
              lab.backend().run(op::GradientNorm{.update = update,
                                                 .gradients = lab.random<float>(1, n, static_cast<uint32_t>(t)),
                                                 .settings = settings});
              append(results, lab.get(update));
            }
            return results;
          },
          {.absolute = 0, .relative = 1e-6}, fmt::format("{} elements, most {}", n, max_norm));
    }
  }
}

TEST_F(CudaOptimizer, NormInPieces) {
  for (const int64_t n : kSizes) {
    expect_twins(
        [&](Lab& lab) {
          const View x = lab.random<float>(1, n, 1), sums = lab.put(std::vector<double>(3, -1), 1, 3);
          for (int64_t i = 0; i < 3; ++i) {
            lab.backend().run(op::SumOfSquares{.sum = sums.slice_cols(i, 1),
                                               .x = x.slice_cols(n * i / 3, n * (i + 1) / 3 - n * i / 3)});
          }
          UpdateState* update = lab.put_struct(UpdateState{.updates = 2});
          lab.backend().run(op::PrepareUpdate{
              .update = update, .sums = sums, .settings = {.adam = {}, .max_norm = 0.5F, .average_decay = 0.9F}});
          Results results;
          append(results, lab.get(update));
          return results;
        },
        {.absolute = 0, .relative = 1e-6}, fmt::format("{} elements", n));
  }
}

TEST_F(CudaOptimizer, AddRows) {
  for (const int64_t cols : {1, 7, 512}) {
    expect_twins(
        [&](Lab& lab) {
          const View table = lab.random<float>(9, cols, 1);
          lab.backend().run(op::AddRows{.table = table,
                                        .ids = lab.put(std::vector<int32_t>{8, -1, 0, 3, -1}),
                                        .rows = lab.random<float>(5, cols, 2)});
          Results results;
          lab.append(results, table);
          return results;
        },
        {.absolute = 0, .relative = 0}, fmt::format("{} columns", cols));
  }
}

TEST_F(CudaOptimizer, StampsRise) {
  Lab lab(*gpu());
  struct Times {
    uint64_t first, second;
  };
  Times* times = lab.put_struct(Times{0, 0});
  lab.backend().stamp(&times->first);
  const Room large = lab.random<float>(1, 3000000, 1);
  UpdateState* update = lab.put_struct(UpdateState{});
  lab.backend().run(op::GradientNorm{.update = update, .gradients = large, .settings = {}});
  lab.backend().stamp(&times->second);
  const Times measured = lab.get(times);
  EXPECT_GT(measured.first, 0U);
  EXPECT_GT(measured.second, measured.first);
  EXPECT_LT(measured.second - measured.first, 5'000'000'000U);
}

TEST_F(CudaOptimizer, OneBadGradientAnywhereShows) {
  for (const size_t place : {size_t{0}, size_t{65535}, size_t{70000}, size_t{200016}}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      Lab lab(*gpu());
      auto gradients = testing::Matrix<float>::random(1, 200017, 1);
      gradients.data[place] = bad;
      UpdateState* update = lab.put_struct(UpdateState{.updates = 5});
      lab.backend().run(op::GradientNorm{
          .update = update, .gradients = lab.put(gradients.data, 1, 200017), .settings = {.adam = {}, .max_norm = 1}});
      EXPECT_EQ(lab.get(update).finite, 0U) << place;
      EXPECT_EQ(lab.get(update).updates, 5U) << place;
    }
  }
  Lab lab(*gpu());
  UpdateState* update = lab.put_struct(UpdateState{});
  const std::vector<float> large(1000, 3e38F);  // their squares overflow a float, not the sum
  lab.backend().run(op::GradientNorm{.update = update, .gradients = lab.put(large, 1, 1000), .settings = {}});
  EXPECT_EQ(lab.get(update).finite, 1U);
  EXPECT_NEAR(lab.get(update).norm / (3e38 * std::sqrt(1000.0)), 1, 1e-6);
}

// Some updates of a model of n weights, as a step does them.
struct Update {
  Lab& lab;
  int64_t n;
  UpdateSettings settings;
  Room masters = lab.random<float>(1, n, 1), m = lab.put_zeros<float>(1, n), v = lab.put_zeros<float>(1, n),
       average = lab.random<float>(1, n, 3), compute = lab.poisoned(1, n);
  UpdateState* update = lab.put_struct(UpdateState{});
  const StepState* state = lab.put_struct(StepState{.learning_rate = 0.01F});

  void run(const View& gradients, bool copy) {
    lab.backend().run(op::GradientNorm{.update = update, .gradients = gradients, .settings = settings});
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
  Results results() {
    Results all;
    for (const Room* room : {&masters, &m, &v, &average}) {
      lab.append(all, *room);
    }
    append(all, lab.get(update));
    return all;
  }
};

TEST_F(CudaOptimizer, AdamAndAverage) {
  const AdamSettings settings[] = {{},
                                   {.beta1 = 0.9F, .beta2 = 0.98F, .epsilon = 1e-9F},
                                   {.weight_decay = 0.1F},
                                   {.beta2 = 0.98F, .weight_decay = 0.1F, .decoupled = true}};
  for (const int64_t n : kSizes) {
    for (const AdamSettings& adam : settings) {
      if (leaves_out()) {
        continue;
      }
      expect_twins(
          [&](Lab& lab) {
            Update update{lab, n, {.adam = adam, .max_norm = 0.5F, .average_decay = 0.99F}};
            for (uint32_t t = 0; t < 3; ++t) {
              update.run(lab.random<float>(1, n, 10 + t), true);
            }
            const std::vector<float> masters = lab.values<float>(update.masters);
            const std::vector<bf16> compute = lab.values<bf16>(update.compute);
            for (size_t i = 0; i < masters.size(); ++i) {
              EXPECT_EQ(compute[i].bits, bf16(masters[i]).bits) << i;
            }
            return update.results();
          },
          {.absolute = 2e-6, .relative = 1e-5}, fmt::format("{} weights, decay {}", n, adam.weight_decay));
    }
  }
}

TEST_F(CudaOptimizer, WithoutACopy) {
  expect_twins(
      [](Lab& lab) {
        Update update{lab, 1000, {}};
        update.run(lab.random<float>(1, 1000, 10), false);
        return update.results();
      },
      {.absolute = 2e-6, .relative = 1e-5}, "no bf16 copy");
}

TEST_F(CudaOptimizer, ABadGradientChangesNothing) {
  Lab lab(*gpu());
  Update update{lab, 1000, {}};
  const std::vector<float> masters = lab.values<float>(update.masters), m = lab.values<float>(update.m),
                           average = lab.values<float>(update.average);
  auto gradients = testing::Matrix<float>::random(1, 1000, 1);
  gradients.data[77] = std::numeric_limits<float>::quiet_NaN();
  update.run(lab.put(gradients.data, 1, 1000), true);
  EXPECT_EQ(lab.values<float>(update.masters), masters);
  EXPECT_EQ(lab.values<float>(update.m), m);
  EXPECT_EQ(lab.values<float>(update.v), std::vector<float>(1000));
  EXPECT_EQ(lab.values<float>(update.average), average);
  EXPECT_EQ(lab.get(update.update).updates, 0U);
}

// A flat buffer that begins at an odd address.
TEST_F(CudaOptimizer, AnyAddress) {
  expect_twins(
      [](Lab& lab) {
        constexpr int64_t kCount = 1000;
        const auto shifted = [&](uint32_t seed) { return lab.random<float>(1, kCount, seed, 1, 1); };
        const Room masters = shifted(1), m = lab.put_zeros<float>(1, kCount), v = lab.put_zeros<float>(1, kCount),
                   average = shifted(3);
        const Room gradients = shifted(4), compute = lab.poisoned(1, kCount, 1);
        UpdateState* update = lab.put_struct(UpdateState{});
        const StepState* state = lab.put_struct(StepState{.learning_rate = 0.01F});
        lab.backend().run(op::GradientNorm{.update = update, .gradients = gradients, .settings = {}});
        lab.backend().run(op::Adam{.masters = masters,
                                   .m = m,
                                   .v = v,
                                   .compute = compute,
                                   .gradients = gradients,
                                   .settings = {},
                                   .state = state,
                                   .update = update});
        lab.backend().run(op::MovingAverage{.average = average, .masters = masters, .update = update});
        Results results;
        for (const Room* room : {&masters, &m, &v, &average}) {
          lab.append(results, *room);
        }
        append(results, lab.get(update));
        return results;
      },
      {.absolute = 2e-6, .relative = 1e-5}, "odd address");
}

}  // namespace
}  // namespace tandem::backend
