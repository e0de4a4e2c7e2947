// Ranks form a process group, work together, and learn of each other's end.
#include "dist/process_group.h"

#include <atomic>

#include "core/error.h"
#include "process_groups.h"
#include "ranks.h"

namespace tandem::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::expect_all_say;
using testing::expect_no_errors;
using testing::make_local_worlds;
using testing::message_of;
using testing::quick_options;
using testing::run_process_groups;
using testing::run_ranks;
using testing::same_bits;
using testing::sum_of;
using testing::values_of;
using testing::view_of;

TEST(ProcessGroup, SumsGathersAndLeaves) {
  for (const int size : {2, 3, 5}) {
    const auto expected = sum_of<float>(size, 100003);
    expect_no_errors(run_process_groups(size, [&](ProcessGroup& group) {
      std::vector<float> values = values_of<float>(group.rank(), 100003);
      group.communicator().all_reduce(view_of(values));
      EXPECT_TRUE(same_bits(values, expected));
      for (int round = 0; round < 3; ++round) {
        const auto texts = group.gather(fmt::format("{} of {}", group.rank(), round));
        ASSERT_EQ(static_cast<int>(texts.size()), size);
        for (int rank = 0; rank < size; ++rank) {
          EXPECT_EQ(texts[rank], fmt::format("{} of {}", rank, round));
        }
      }
      EXPECT_EQ(group.ranks()[size - 1].address, "127.0.0.1");
      EXPECT_EQ(group.ranks()[0].interface, "lo");
      EXPECT_EQ(group.failure(), "");
    }));
  }
}

TEST(ProcessGroup, GroupsOfRanks) {
  expect_no_errors(run_process_groups(4, [&](ProcessGroup& group) {
    const int pair = group.rank() / 2;
    Communicator& inside = group.add_communicator("pair " + std::to_string(pair), {2 * pair, 2 * pair + 1});
    Communicator& across =
        group.add_communicator("row " + std::to_string(group.rank() % 2), {group.rank() % 2, group.rank() % 2 + 2});
    EXPECT_EQ(inside.rank(), group.rank() % 2);
    EXPECT_EQ(across.rank(), pair);
    std::vector<double> value{static_cast<double>(1 << group.rank())};
    inside.all_reduce(view_of(value));
    EXPECT_EQ(value[0], pair == 0 ? 3 : 12);
    across.all_reduce(view_of(value));
    EXPECT_EQ(value[0], 15);
    EXPECT_THROW(group.add_communicator("of others", {(group.rank() + 1) % 4}), Error);
  }));
}

// Two hosts of two ranks: all get the same sums, in place, rounded, scattered and gathered, and send the planned bytes.
TEST(ProcessGroup, SumsInsideTheHostsThenBetweenThem) {
  constexpr int64_t kCount = 160000;  // in four equal shards
  std::vector<World> worlds = make_local_worlds(4);
  for (World& world : worlds) {
    world.node = world.rank / 2;
    world.nodes = 2;
    world.local_rank = world.rank % 2;
    world.local_size = 2;
  }
  std::vector<double> expected(kCount);
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<float> own = values_of<float>(rank, kCount);
    std::transform(own.begin(), own.end(), expected.begin(), expected.begin(), std::plus<>());
  }
  expect_no_errors(run_ranks(worlds, [&](const World& world) {
    const auto group = join_process_group(world, {}, quick_options());
    {
      const auto levels = make_hierarchical_communicator(*group);
      const std::vector<float> own = values_of<float>(group->rank(), kCount);
      std::vector<double> values(own.begin(), own.end()), scattered = values, whole = values;
      std::vector<float> sums(kCount);
      levels->start_rounded_all_reduce(view_of(sums), view_of(values)).wait();
      levels->reduce_scatter(view_of(scattered));
      const Shard shard = levels->own_shard(kCount);
      ASSERT_EQ(shard.count, kCount / 4);
      for (int64_t i = shard.begin; i < shard.begin + shard.count; ++i) {
        ASSERT_EQ(scattered[i], expected[i]) << i;
      }
      levels->all_gather(view_of(scattered));
      levels->all_reduce(view_of(whole));
      for (int64_t i = 0; i < kCount; ++i) {  // f32 values of like size: f64 adds them without rounding
        ASSERT_EQ(sums[i], static_cast<float>(expected[i])) << i;
        ASSERT_EQ(whole[i], expected[i]) << i;
        ASSERT_EQ(scattered[i], expected[i]) << i;
      }
      const Traffic twice = levels->planned_all_reduce(kCount, DType::f64);
      EXPECT_EQ(levels->traffic(), levels->planned_rounded_all_reduce(kCount) + twice + twice);
    }
    group->leave();
  }));
}

TEST(ProcessGroup, OfOneNeedsNoSockets) {
  World alone;
  alone.host = "here";
  const auto group =
      join_process_group(alone, {.version = "1", .config = "", .data = "", .checkpoint = "", .device = ""});
  EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(group->ranks().at(0).host, "here");
  EXPECT_EQ(group->gather("x"), std::vector<std::string>{"x"});
  std::vector<float> values(3, 2.0F);
  group->communicator().all_reduce(view_of(values));
  EXPECT_EQ(values[0], 2.0F);
  int calls = 0;
  group->on_failure([&](const std::string& reason) { calls += reason == "enough" ? 1 : 100; });
  group->stop("enough");
  group->stop("again");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(message_of([&] { group->communicator().barrier(); }), "enough");
  group->leave();
}

// An idle main thread, and a collective that waits for it, may exceed the silence limit without counting as dead.
TEST(ProcessGroup, LongWorkIsNoDeath) {
  expect_no_errors(run_process_groups(3, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(2500));
    }
    group.communicator().barrier();
    if (group.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(1800));
    }
    group.gather("");
  }));
}

TEST(ProcessGroup, LeavingWaitsForAll) {
  std::atomic<int> came = 0;
  expect_no_errors(run_ranks(make_local_worlds(3), [&](const World& world) {
    const auto group = join_process_group(world, {}, quick_options());
    std::this_thread::sleep_for(milliseconds(world.rank == 2 ? 600 : 0));
    ++came;
    group->leave();
    EXPECT_EQ(came, 3);
    EXPECT_THROW(group->communicator(), Error);
  }));
}

TEST(ProcessGroup, AnErrorOfOneIsTheErrorOfAll) {
  std::atomic<int> heard = 0;
  const auto errors = run_ranks(make_local_worlds(3), [&](const World& world) {
    const auto group = join_process_group(world, {}, quick_options());
    group->on_failure([&](const std::string&) { ++heard; });
    if (group->rank() == 1) {
      group->stop("the disk is full");
      fail("{}", group->failure());
    }
    group->communicator().barrier();
  });
  expect_all_say(errors, "rank 1 on host ");
  expect_all_say(errors, ": the disk is full");
  EXPECT_EQ(heard, 3);
}

TEST(ProcessGroup, OneThatEndsEarlyIsNamed) {
  for (const int lost : {0, 2}) {
    const auto began = steady_clock::now();
    auto errors = run_ranks(make_local_worlds(3), [&](const World& world) {
      const auto group = join_process_group(world, {}, quick_options());
      require(group->rank() != lost, "I give up");
      group->communicator().barrier();
      ADD_FAILURE() << "the barrier came through without rank " << lost;
    });
    EXPECT_EQ(errors[lost], "I give up");
    errors.erase(errors.begin() + lost);
    expect_all_say(errors, fmt::format("rank {} on host ", lost));
    expect_all_say(errors, "ended before the others");
    EXPECT_LT(steady_clock::now() - began, milliseconds(5000));
  }
}

TEST(ProcessGroup, FailureEndsAGatherAndLeave) {
  const auto errors = run_ranks(make_local_worlds(3), [&](const World& world) {
    const auto group = join_process_group(world, {}, quick_options());
    if (group->rank() == 0) {
      group->gather("never all of them");
    } else if (group->rank() == 1) {
      group->leave();
    } else {
      std::this_thread::sleep_for(milliseconds(200));
      group->stop("no more");
      fail("{}", group->failure());
    }
  });
  expect_all_say(errors, "rank 2 on host ");
  expect_all_say(errors, ": no more");
}

}  // namespace
}  // namespace tandem::dist
