// What a checkpoint holds of an optimizer with slots of every extent, on one rank and on two, sharded and not.
#include "train/host_tensors.h"

#include <gtest/gtest.h>

#include <numeric>

#include "data/corpus_of.h"
#include "dist/ranks.h"
#include "train/learner.h"
#include "train/small_config.h"

namespace tandem::train {
namespace {

// Computes nothing; its slots' numbers say where they come from.
class ThreeSlots final : public optim::Optimizer {
 public:
  ThreeSlots(backend::Backend& backend, int64_t count, int rank)
      : Optimizer(backend, {}), parameters_(static_cast<size_t>(count)), shared_(6), own_(4) {
    std::iota(parameters_.begin(), parameters_.end(), 1000.0F * static_cast<float>(rank));
    std::iota(shared_.begin(), shared_.end(), 0.5F);
    std::iota(own_.begin(), own_.end(), 0.25F + 10.0F * static_cast<float>(rank));
  }

  std::vector<optim::Slot> slots() const override {
    return {{"numbers", host_view(parameters_.data(), 1, std::ssize(parameters_))},
            {"shared", host_view(shared_.data(), 3, 2), optim::Slot::Extent::shared},
            {"own", host_view(own_.data(), 2, 2), optim::Slot::Extent::own}};
  }
  bool operator==(const ThreeSlots& other) const {
    return parameters_ == other.parameters_ && shared_ == other.shared_ && own_ == other.own_;
  }
  void forget() {
    for (std::vector<float>* slot : {&parameters_, &shared_, &own_}) {
      std::fill(slot->begin(), slot->end(), std::numeric_limits<float>::quiet_NaN());
    }
  }

 private:
  void change_weights(const optim::UpdateBuffers&, int64_t, const backend::StepState*,
                      const backend::UpdateState*) override {}

  mutable std::vector<float> parameters_, shared_, own_;
};

void save_and_resume(dist::Communicator& host, bool sharded) {
  const data::Corpus corpus = testing::corpus_of({{4, 5, 6}, {7, 8}}, {{9, 10}, {11, 12, 13}});
  const auto backend = backend::make_cpu_backend(1);
  TrainConfig config = small_config();
  config.dist.shard_optimizer = sharded;
  Learner learner(*backend, config, corpus, {host, host});
  learner.begin();
  ThreeSlots saved(*backend, learner.update().own_parameters(), host.rank());
  HostTensors read(*backend, learner.weights(), saved, learner.update(), host, HostTensors::save);
  read.read();
  const std::vector<store::SlotTensor> before = read.views().slots;
  ASSERT_EQ(before.size(), 3U);
  EXPECT_EQ(before[0].view.size(), learner.weights().masters().size());
  EXPECT_EQ(before[1].view.rows, 3);
  EXPECT_EQ(before[2].view.rows, 2 * host.size());
  for (int rank = 0; rank < host.size(); ++rank) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(before[2].view.host<float>()[4 * rank + i],
                0.25F + 10.0F * static_cast<float>(rank) + static_cast<float>(i));
    }
  }

  ThreeSlots resumed(*backend, learner.update().own_parameters(), host.rank());
  resumed.forget();
  HostTensors written(*backend, learner.weights(), resumed, learner.update(), host, HostTensors::load);
  const std::vector<store::SlotTensor> after = written.views().slots;
  for (size_t i = 0; i < before.size(); ++i) {
    ASSERT_EQ(after[i].view.size(), before[i].view.size());
    std::copy_n(before[i].view.host<float>(), before[i].view.size(), after[i].view.host<float>());
  }
  written.commit();
  EXPECT_TRUE(resumed == saved);
}

TEST(HostTensors, SlotsOfEveryExtentAreSavedAndResumed) {
  save_and_resume(*dist::make_single_communicator(), false);
  for (const bool sharded : {false, true}) {
    testing::with_ranks(2, [sharded](dist::Communicator& host) { save_and_resume(host, sharded); });
  }
}

}  // namespace
}  // namespace tandem::train
