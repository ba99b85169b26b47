// Many calls: asynchronous ones, several communicators, random ones.
#include <chrono>
#include <numeric>
#include <span>
#include <vector>

#include "conformance/collectives_fixture.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "support/fill.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::ExactValue;
using support::FillExact;
using support::IsOk;

TEST_P(Conformance, AsynchronousOperationsRunInOrder) {
  Run([](Runtime& runtime, Communicator& world) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      tensors.emplace_back(runtime, i % 2 == 0 ? Place::kPlain : Place::kArena, DType::kF32, 1 + i * 4001);
      FillExact(tensors.back().view(), i, world.rank());
      works.push_back(world.AllReduceAsync(tensors.back().view()));
    }
    float last = static_cast<float>(world.rank());
    ASSERT_THAT(world.AllReduce(std::span(&last, 1)), IsOk());  // a blocking call queues behind them
    EXPECT_EQ(last, world.size() * (world.size() - 1) / 2);
    for (int i = 19; i >= 0; --i) {
      ASSERT_THAT(works[i].Wait(), IsOk());
      ASSERT_TRUE(works[i].Done());
      for (int64_t e = 0; e < 1 + i * 4001; e += 97) {
        ASSERT_EQ(tensors[i].at(e), Reduced(ReduceOp::kSum, DType::kF32, i, world.size(), e));
      }
    }
  });
}

TEST_P(Conformance, AsynchronousWorkEndsWithoutBeingWaitedFor) {
  Run([](Runtime&, Communicator& world) {
    std::vector<float> data(100000, 1.0f);
    Work work = world.AllReduceAsync(data);
    while (!work.Done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(data[99999], static_cast<float>(world.size()));
  });
}

TEST_P(Conformance, SplitMakesIndependentGroups) {
  Run([](Runtime&, Communicator& world) {
    const int n = world.size(), me = world.rank();
    std::vector<int> mine;
    for (int r = n - 1; r >= 0; --r) {
      if (r % 2 == me % 2) mine.push_back(r);  // in reverse: new numbers differ from the old
    }
    auto half = world.Split(mine);
    ASSERT_THAT(half, IsOk());
    ASSERT_EQ((*half)->size(), static_cast<int>(mine.size()));
    ASSERT_EQ(mine[(*half)->rank()], me);
    // The halves work at their own pace, the world's operations between theirs.
    for (int i = 0; i < 10 + me % 2 * 10; ++i) {
      std::vector<int64_t> value = {me, 1};
      ASSERT_THAT((*half)->AllReduce(value), IsOk());
      ASSERT_EQ(value[0], std::accumulate(mine.begin(), mine.end(), int64_t{0}));
      ASSERT_EQ(value[1], static_cast<int64_t>(mine.size()));
    }
    std::vector<float> big(100001, static_cast<float>(me));
    ASSERT_THAT((*half)->Broadcast(big, (*half)->size() - 1), IsOk());
    ASSERT_EQ(big[100000], static_cast<float>(mine.back()));
    ASSERT_THAT(world.Barrier(), IsOk());
    // A rank that stays out.
    std::vector<int> others;
    for (int r = 1; r < n; ++r) others.push_back(r);
    auto rest = world.Split(me == 0 ? std::span<const int>() : std::span<const int>(others));
    ASSERT_THAT(rest, IsOk());
    ASSERT_EQ(*rest == nullptr, me == 0);
    if (me != 0) {
      ASSERT_THAT((*rest)->Barrier(), IsOk());
    }
    // Split of a split.
    const int alone = (*half)->rank();
    auto single = (*half)->Split({{alone}});
    ASSERT_THAT(single, IsOk());
    ASSERT_EQ((*single)->size(), 1);
  });
}

TEST_P(Conformance, TwoGroupsInDifferentOrderDoNotDeadlock) {
  Run([](Runtime&, Communicator& world) {
    std::vector<int> all(world.size());
    std::iota(all.begin(), all.end(), 0);
    auto other = world.Split(all);
    ASSERT_THAT(other, IsOk());
    std::vector<float> a(50000, 1), b(50000, 2);
    Work first, second;
    if (world.rank() % 2 == 0) {
      first = world.AllReduceAsync(a);
      second = (*other)->AllReduceAsync(b);
    } else {
      second = (*other)->AllReduceAsync(b);
      first = world.AllReduceAsync(a);
    }
    ASSERT_THAT(first.Wait(), IsOk());
    ASSERT_THAT(second.Wait(), IsOk());
    EXPECT_EQ(a[49999], world.size());
    EXPECT_EQ(b[49999], 2 * world.size());
  });
}

// Many random calls, all ranks drawing the same ones from a seed, with asynchronous ones mixed in.
TEST_P(Conformance, RandomCallsStayInStep) {
  Run([](Runtime& runtime, Communicator& world) {
    uint64_t state = 12345;
    const auto draw = [&state](uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<int64_t>((state >> 33) % below);
    };
    for (int i = 0; i < 60; ++i) {
      const int64_t count = draw(3) == 0 ? draw(100000) : draw(300);
      const auto place = static_cast<Place>(draw(4));
      Tensor tensor(runtime, place, DType::kF32, count);
      FillExact(tensor.view(), i, world.rank());
      const int root = static_cast<int>(draw(world.size()));
      const bool asynchronous = draw(2) == 0;
      const bool broadcast = draw(3) == 0;
      const absl::Status status =
          broadcast
              ? (asynchronous ? world.BroadcastAsync(tensor.view(), root).Wait() : world.Broadcast(tensor.view(), root))
              : (asynchronous ? world.AllReduceAsync(tensor.view()).Wait() : world.AllReduce(tensor.view()));
      ASSERT_THAT(status, IsOk());
      for (int64_t e = 0; e < count; e += 1 + count / 20) {
        ASSERT_EQ(tensor.at(e), broadcast ? ExactValue(DType::kF32, i, root, e)
                                          : Reduced(ReduceOp::kSum, DType::kF32, i, world.size(), e));
      }
    }
  });
}

}  // namespace
}  // namespace gyre
