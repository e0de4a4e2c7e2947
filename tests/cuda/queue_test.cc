#include <algorithm>

#include "cuda/device.h"

namespace tandem::backend {
namespace {

using testing::Lab;
using testing::Results;
using testing::Room;

class CudaQueue : public testing::CudaTest {};

// A small step: product, norm, loss and their backward, optimizer. All that changes from step to step is in `state`.
struct Step {
  static constexpr int64_t kRows = 200, kCols = 128, kPieces = 1024, kCount = kPieces * kCols;

  Lab& lab;
  StepState* state = lab.put_struct(StepState{});
  UpdateState* update = lab.put_struct(UpdateState{});
  LossTotals* totals = lab.put_struct(LossTotals{});
  Room x = lab.c().random(kRows, kCols, 1), hidden = lab.c().poisoned(kRows, kCols),
       normed = lab.c().poisoned(kRows, kCols), logits = lab.c().poisoned(kRows, kPieces),
       dnormed = lab.c().poisoned(kRows, kCols), dx = lab.c().poisoned(kRows, kCols);
  Room statistics = lab.m().poisoned(kRows, 2), gamma = lab.m().random(1, kCols, 2), beta = lab.m().random(1, kCols, 3),
       dgamma = lab.m().zeros(1, kCols), dbeta = lab.m().zeros(1, kCols);
  Room masters = lab.m().random(kPieces, kCols, 4), m = lab.m().zeros(kPieces, kCols),
       v = lab.m().zeros(kPieces, kCols), gradients = lab.m().zeros(kPieces, kCols),
       weights = lab.c().random(kPieces, kCols, 4), w = lab.c().random(kCols, kCols, 5);
  View labels = lab.put(std::vector<int32_t>(kRows, 17)), sum = lab.put_sum();

  View flat(const Room& room) { return room.inner.reshape(1, kCount); }

  void give() {
    Backend& backend = lab.backend();
    const Dropout dropout{0.1F, 3, Side::target, state};
    backend.fill_zero(gradients);
    backend.run(op::Linear{.y = hidden, .x = x, .w = w, .activation = Activation::relu, .dropout = dropout});
    backend.run(op::ResidualNorm{.sum = hidden,
                                 .normed = normed,
                                 .statistics = statistics,
                                 .residual = hidden,
                                 .branch = x,
                                 .gamma = gamma,
                                 .beta = beta,
                                 .dropout = dropout});
    backend.run(op::Linear{.y = logits, .x = normed, .w = weights});
    backend.run(
        op::CrossEntropy{.totals = totals, .logits = logits, .labels = labels, .smoothing = 0.1F, .state = state});
    backend.run(op::LinearBackwardWeights{
        .gradients = testing::one(WeightGradient{.dw = gradients, .dy = logits, .x = normed})});
    backend.run(op::LinearBackwardInput{.dx = dnormed, .dy = logits, .w = weights});
    backend.run(op::ResidualNormBackward{.dresidual = dx,
                                         .dgamma = dgamma,
                                         .dbeta = dbeta,
                                         .dnormed = dnormed,
                                         .sum = hidden,
                                         .statistics = statistics,
                                         .gamma = gamma,
                                         .dropout = dropout});
    testing::prepare_update(backend, update, sum, flat(gradients), {.adam = {}, .max_norm = 1});
    backend.run(op::Adam{.masters = flat(masters),
                         .m = flat(m),
                         .v = flat(v),
                         .compute = flat(weights),
                         .gradients = flat(gradients),
                         .settings = {},
                         .state = state,
                         .update = update});
  }

  Results results() {
    const LossTotals sums = lab.get(totals);
    Results all = {sums.smoothed,        sums.nll,
                   sums.correct,         sums.tokens,
                   lab.get(update).norm, static_cast<double>(lab.get(update).updates)};
    for (const Room* room : {&logits, &dx, &dgamma, &dbeta, &masters, &v, &weights}) {
      const Results values = lab.values(room->whole);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
};

TEST_F(CudaQueue, ARecordedStepGivesTheBitsOfThePlainCalls) {
  Lab plain_lab(*gpu()), recorded_lab(*gpu());
  Step plain{plain_lab}, recorded{recorded_lab};
  const auto recording = gpu()->record([&] { recorded.give(); });
  for (uint32_t step = 0; step < 3; ++step) {
    const StepState state{.seed = 9,
                          .step = step,
                          .first_target = 100 * step,
                          .loss_scale = 0.01F,
                          .learning_rate = 0.001F * static_cast<float>(step + 1)};
    plain_lab.change(plain.state, state);
    recorded_lab.change(recorded.state, state);
    plain.give();
    recording->run();
    gpu()->wait();
    const Results expected = plain.results(), actual = recorded.results();
    ASSERT_EQ(actual.size(), expected.size());
    EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(double)), 0) << "step " << step;
  }
}

TEST_F(CudaQueue, TheStepIsThatOfTheCpu) {
  const auto run = [](Backend& backend) {
    Lab lab(backend);
    Step step{lab};
    lab.change(step.state, StepState{.seed = 9, .loss_scale = 0.01F, .learning_rate = 0.001F});
    step.give();
    const LossTotals sums = lab.get(step.totals);
    return Results{sums.smoothed, sums.nll, sums.tokens, lab.get(step.update).norm};
  };
  EXPECT_TRUE(testing::all_close(run(*gpu()), run(cpu()), 0, 1e-2));
}

TEST_F(CudaQueue, StampsRise) {
  Lab lab(*gpu());
  struct Times {
    uint64_t first, second;
  };
  Times* times = lab.put_struct(Times{0, 0});
  lab.backend().stamp(&times->first);
  const Room large = lab.m().random(1, 3000000, 1);
  UpdateState* update = lab.put_struct(UpdateState{});
  testing::prepare_update(lab.backend(), update, lab.put_sum(), large, {});
  lab.backend().stamp(&times->second);
  const Times measured = lab.get(times);
  EXPECT_GT(measured.first, 0U);
  EXPECT_GT(measured.second, measured.first);
  EXPECT_LT(measured.second - measured.first, 5'000'000'000U);
}

TEST_F(CudaQueue, TooMuchMemoryIsSaidWithBothFigures) {
  try {
    gpu()->allocate(size_t{1} << 50);
    FAIL() << "a petabyte was allocated";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("free"), std::string::npos) << error.what();
  }
  Lab lab(*gpu());  // and work goes on
  EXPECT_EQ(lab.values<float>(lab.put(std::vector<float>{1, 2}, 1, 2)), (std::vector<float>{1, 2}));
}

TEST_F(CudaQueue, AFailureInARecordingLeavesTheBackendUsable) {
  EXPECT_THROW(gpu()->record([] { fail("no"); }), Error);
  Lab lab(*gpu());
  const Room room = lab.c().poisoned(3, 5);
  lab.backend().fill_zero(room);
  EXPECT_EQ(static_cast<float>(lab.values<bf16>(room)[7]), 0);
}

// Blocks arrive in order, each before the work that is given after it, whatever is still going on.
TEST_F(CudaQueue, FeedAndOutbox) {
  constexpr int64_t kCount = 50000;
  constexpr size_t kBytes = kCount * sizeof(float);
  const auto feed = gpu()->make_feed(kBytes);
  const auto outbox = gpu()->make_outbox(kBytes);
  const auto floats = [](void* block) { return make_view(block, DType::f32, 1, kCount, Memory::device); };
  const auto work = gpu()->record([&] { gpu()->copy(floats(outbox->block()), floats(feed->block())); });
  std::vector<float> result(kCount);
  int taken = 0;
  const auto take = [&] {
    outbox->take(result.data());
    ASSERT_EQ(result.front(), static_cast<float>(taken));
    ASSERT_EQ(result.back(), static_cast<float>(taken));
    ++taken;
  };
  for (int i = 0; i < 50; ++i) {
    const std::span<std::byte> next = feed->next();
    ASSERT_EQ(next.size(), kBytes);
    std::fill_n(reinterpret_cast<float*>(next.data()), kCount, static_cast<float>(i));
    feed->send();
    work->run();
    outbox->post();
    if (outbox->waiting() > 3) {
      take();
    }
  }
  while (outbox->waiting() > 0) {
    take();
  }
  EXPECT_EQ(taken, 50);
}

}  // namespace
}  // namespace tandem::backend
