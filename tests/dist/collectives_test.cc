// All collectives on 1 to 7 ranks in one process, against a plain loop in the order of ranks, bit by bit.
#include <algorithm>
#include <atomic>

#include "ranks.h"
#include "temporary_directory.h"

namespace tandem::dist {
namespace {

using testing::same_bits;
using testing::sum_of;
using testing::values_of;
using testing::view_of;
using testing::with_ranks;

template <class T>
class Collectives : public ::testing::Test {};
using Types = ::testing::Types<float, bf16, double, int32_t>;
TYPED_TEST_SUITE(Collectives, Types);

constexpr int64_t kCounts[] = {0, 1, 5, 1000, (1 << 20) + 3};

template <class T>
void check_sums(Communicator& ranks, int64_t count, const std::vector<T>& expected) {
  const std::vector<T> own = values_of<T>(ranks.rank(), count);
  std::vector<T> whole = own;
  ranks.all_reduce(view_of(whole));
  EXPECT_TRUE(same_bits(whole, expected)) << count << " elements, rank " << ranks.rank() << " of " << ranks.size();

  std::vector<T> parts = own;
  ranks.reduce_scatter(view_of(parts));
  const Shard shard = ranks.own_shard(count);
  std::vector<T> scattered = own;  // only the own shard changes
  std::copy_n(expected.begin() + shard.begin, shard.count, scattered.begin() + shard.begin);
  EXPECT_TRUE(same_bits(parts, scattered));
  ranks.all_gather(view_of(parts));
  EXPECT_TRUE(same_bits(parts, expected));
}

TYPED_TEST(Collectives, SumInTheOrderOfRanks) {
  for (const int size : {1, 2, 3, 4, 7}) {
    std::vector<std::vector<TypeParam>> expected;
    for (const int64_t count : kCounts) {
      expected.push_back(sum_of<TypeParam>(size, count));
    }
    with_ranks(size, [&](Communicator& ranks) {
      for (size_t i = 0; i < std::size(kCounts); ++i) {
        check_sums(ranks, kCounts[i], expected[i]);
      }
    });
  }
}

TYPED_TEST(Collectives, BroadcastFromEveryRank) {
  for (const int size : {1, 2, 3, 4}) {
    with_ranks(size, [&](Communicator& ranks) {
      for (const int64_t count : {0, 1, 5, 1000, 300001}) {
        for (int root = 0; root < size; ++root) {
          std::vector<TypeParam> values = values_of<TypeParam>(ranks.rank(), count);
          ranks.broadcast(view_of(values), root);
          EXPECT_TRUE(same_bits(values, values_of<TypeParam>(root, count))) << count << " from " << root;
        }
      }
    });
  }
}

TEST(Communicator, OrderOfAdditionsMattersInTheseTests) {
  std::vector<float> backwards = values_of<float>(2, 1000);
  for (const int rank : {1, 0}) {
    const std::vector<float> values = values_of<float>(rank, 1000);
    std::transform(backwards.begin(), backwards.end(), values.begin(), backwards.begin(), std::plus<>());
  }
  EXPECT_FALSE(same_bits(backwards, sum_of<float>(3, 1000)));
}

TEST(Communicator, ManyUnderWayTogether) {
  const auto first = sum_of<float>(3, 400000);
  const auto second = sum_of<bf16>(3, 70001);
  with_ranks(3, [&](Communicator& ranks) {
    std::vector<std::vector<float>> buffers(6, values_of<float>(ranks.rank(), 400000));
    std::vector<bf16> narrow = values_of<bf16>(ranks.rank(), 70001);
    std::vector<double> norm = {0.5};
    std::vector<Handle> handles;
    for (auto& buffer : buffers) {
      handles.push_back(ranks.start_all_reduce(view_of(buffer)));
    }
    handles.push_back(ranks.start_all_reduce(view_of(narrow)));
    handles.push_back(ranks.start_barrier());
    handles.push_back(ranks.start_all_reduce(view_of(norm)));
    for (size_t i = handles.size(); i-- > 0;) {
      handles[i].wait();
    }
    for (const auto& buffer : buffers) {
      EXPECT_TRUE(same_bits(buffer, first));
    }
    EXPECT_TRUE(same_bits(narrow, second));
    EXPECT_EQ(norm[0], 1.5);
  });
}

// The second sum adds the first one's result, even if they share only a part of the memory.
TEST(Communicator, CallsOnTheSameMemoryKeepTheirOrder) {
  constexpr int kRanks = 3;
  with_ranks(kRanks, [&](Communicator& ranks) {
    for (int round = 0; round < 10; ++round) {
      std::vector<float> values(300000, 1.0F + static_cast<float>(ranks.rank()));
      std::vector<float> other(values.size(), 1);
      const View all = view_of(values);
      std::vector<Handle> handles;
      handles.push_back(ranks.start_all_reduce(all));                        // 6 everywhere
      handles.push_back(ranks.start_all_reduce(view_of(other)));             // 3, meanwhile
      handles.push_back(ranks.start_all_reduce(all.slice_cols(0, 150000)));  // 18 in the first half
      handles.push_back(ranks.start_reduce_scatter(all));                    // 54, and 18 in the second
      handles.push_back(ranks.start_all_gather(all));
      handles.push_back(ranks.start_broadcast(all.slice_cols(149999, 2), 1));
      for (Handle& handle : handles) {
        handle.wait();
      }
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], i < 150000 ? 54 : 18) << i;
        ASSERT_EQ(other[i], kRanks);
      }
    }
  });
}

// f64 values, f32 sums: compared with a plain loop over the ranks in f64 that rounds once.
TEST(Communicator, RoundedSums) {
  for (const int size : {1, 2, 3, 7}) {
    for (const int64_t count : kCounts) {
      std::vector<double> wide(count);
      for (int rank = 0; rank < size; ++rank) {
        const std::vector<float> own = values_of<float>(rank, count);
        std::transform(own.begin(), own.end(), wide.begin(), wide.begin(),
                       [](float value, double sum) { return sum + static_cast<double>(value) / 3; });
      }
      const std::vector<float> expected(wide.begin(), wide.end());
      with_ranks(size, [&](Communicator& ranks) {
        const std::vector<float> own = values_of<float>(ranks.rank(), count);
        std::vector<double> values(own.begin(), own.end());
        std::for_each(values.begin(), values.end(), [](double& value) { value /= 3; });
        std::vector<float> sums(count, -1), after(count, 1);
        Handle first = ranks.start_rounded_all_reduce(view_of(sums), view_of(values));
        Handle second = ranks.start_all_reduce(view_of(sums));  // adds the first one's result
        Handle third = ranks.start_all_reduce(view_of(after));
        first.wait();
        second.wait();
        third.wait();
        for (int64_t i = 0; i < count; ++i) {
          float times = 0;
          for (int rank = 0; rank < size; ++rank) {
            times += expected[i];
          }
          ASSERT_EQ(sums[i], times) << i;
          ASSERT_EQ(after[i], size);
        }
        const auto plan = ranks.planned_rounded_all_reduce(count);
        const Traffic rest = ranks.planned_all_reduce(count, DType::f32);
        EXPECT_EQ(ranks.traffic(), plan + rest + rest);
      });
    }
  }
}

TEST(Communicator, DroppedHandleWaitsForItsBuffer) {
  with_ranks(2, [&](Communicator& ranks) {
    for (int round = 0; round < 20; ++round) {
      std::vector<float> values = values_of<float>(ranks.rank(), 300000);
      const Handle dropped = ranks.start_all_reduce(view_of(values));
    }
    ranks.barrier();
  });
}

TEST(Communicator, BarrierHoldsUntilAllAreThere) {
  std::atomic<int> arrived = 0;
  with_ranks(4, [&](Communicator& ranks) {
    for (int round = 1; round <= 20; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(ranks.rank() == round % 4 ? 5 : 0));
      ++arrived;
      ranks.barrier();
      EXPECT_GE(arrived, 4 * round);
    }
  });
}

TEST(Communicator, CountsTheBytesOfThePlan) {
  for (const int size : {1, 2, 3, 7}) {
    with_ranks(size, [&](Communicator& ranks) {
      Traffic plan;
      for (const int64_t count : {5, 420000}) {
        std::vector<float> values(count);
        ranks.all_reduce(view_of(values));
        plan = plan + ranks.planned_all_reduce(count, DType::f32);
        EXPECT_EQ(ranks.traffic(), plan);
      }
      const Traffic before = ranks.traffic();
      std::vector<bf16> narrow(420000);
      ranks.all_reduce(view_of(narrow));
      const int64_t formula = 2 * (size - 1) * (420000 / size) * 2;
      EXPECT_EQ(ranks.traffic(), before + (Traffic{formula, formula}));
    });
  }
}

TEST(Communicator, SingleLeavesBuffersAsTheyAre) {
  const auto single = make_single_communicator();
  EXPECT_EQ(single->rank(), 0);
  EXPECT_EQ(single->size(), 1);
  std::vector<float> values = values_of<float>(0, 1000);
  single->all_reduce(view_of(values));
  single->reduce_scatter(view_of(values));
  single->all_gather(view_of(values));
  single->broadcast(view_of(values), 0);
  single->barrier();
  EXPECT_TRUE(same_bits(values, values_of<float>(0, 1000)));
  EXPECT_EQ(single->traffic(), Traffic{});
  std::vector<double> wide(1000);
  EXPECT_NE(testing::message_of([&] { single->start_rounded_all_reduce(view_of(values), view_of(wide)); }), "");
  single->abort("enough");
  EXPECT_EQ(testing::message_of([&] { single->barrier(); }), "enough");
}

TEST(Communicator, RefusesWhatItCannotWorkOn) {
  with_ranks(2, [&](Communicator& ranks) {
    std::vector<float> values(12);
    EXPECT_THROW(ranks.all_reduce(host_view(values.data(), 3, 4).slice_cols(0, 2)), Error);
    EXPECT_THROW(ranks.all_reduce(make_view(values.data(), DType::f32, 1, 12, Memory::device)), Error);
    EXPECT_THROW(ranks.broadcast(view_of(values), 2), Error);
    std::vector<double> wide(12), few(11);
    EXPECT_THROW(ranks.start_rounded_all_reduce(view_of(values), view_of(few)), Error);
    EXPECT_THROW(ranks.start_rounded_all_reduce(view_of(wide), view_of(wide)), Error);
    EXPECT_THROW(ranks.start_rounded_all_reduce(view_of(values), view_of(values)), Error);
    ranks.all_reduce(view_of(values));  // none of that did harm
  });
}

}  // namespace
}  // namespace tandem::dist
