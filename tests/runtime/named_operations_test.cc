// Operations by name, in whichever order, on ranks that are threads or processes, of one host or several.
#include "gyre/named_operations.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::HostSizes;
using support::IsOk;
using support::Mode;

class Named : public testing::TestWithParam<std::tuple<Mode, HostSizes>> {
 protected:
  void Run(const std::function<void(Communicator& world, NamedOperations& named)>& body) {
    const auto& [mode, hosts] = GetParam();
    support::RunRanks(mode, std::accumulate(hosts.begin(), hosts.end(), 0), [&](const support::Rank& rank) {
      const auto runtime = support::JoinJob(rank, support::JobOptions(rank, hosts));
      ASSERT_NE(runtime, nullptr);
      auto named = NamedOperations::Create(runtime->world());
      ASSERT_THAT(named, IsOk());
      body(runtime->world(), **named);
      EXPECT_THAT(runtime->world().Barrier(), IsOk());
    });
  }
};

// What rank `rank` brings of tensor `tensor` in step `step`.
std::vector<float> Values(int rank, int tensor, int step) {
  std::vector<float> values(static_cast<size_t>(tensor * tensor * 37 + tensor));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(rank + tensor * 3 + step + static_cast<int>(i % 5));
  return values;
}

float SumOf(int ranks, int tensor, int step, size_t i) {
  const int of_ranks = ranks * (ranks - 1) / 2;
  return static_cast<float>(ranks * (tensor * 3 + step + static_cast<int>(i % 5)) + of_ranks);
}

TEST_P(Named, AnyOrderFromSeveralThreads) {
  Run([](Communicator& world, NamedOperations& named) {
    constexpr int kThreads = 3, kTensors = 4, kSteps = 10;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937 random(static_cast<unsigned>(world.rank() * 10 + thread));
        std::vector<int> order(kTensors);
        std::iota(order.begin(), order.end(), 0);
        for (int step = 0; step < kSteps; ++step) {
          std::ranges::shuffle(order, random);
          std::vector<std::vector<float>> data(kTensors);
          std::vector<Work> works(kTensors);
          for (const int i : order) {
            const int tensor = thread * kTensors + i;
            data[static_cast<size_t>(i)] = Values(world.rank(), tensor, step);
            works[static_cast<size_t>(i)] =
                named.AllReduce(absl::StrCat("tensor", tensor), data[static_cast<size_t>(i)]);
          }
          for (int i = 0; i < kTensors; ++i) {
            ASSERT_THAT(works[static_cast<size_t>(i)].Wait(), IsOk());
            const auto& values = data[static_cast<size_t>(i)];
            for (size_t e = 0; e < values.size(); e += 11) {
              ASSERT_EQ(values[e], SumOf(world.size(), thread * kTensors + i, step, e));
            }
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(named.statistics().operations, kThreads * kTensors * kSteps);
  });
}

TEST_P(Named, AdasumIsTheCommunicators) {
  Run([](Communicator& world, NamedOperations& named) {
    for (int step = 0; step < 3; ++step) {
      std::vector<float> values = Values(world.rank(), 3, step), expected = values;
      ASSERT_THAT(world.AllReduce(expected, {.op = ReduceOp::kAdasum}), IsOk());
      ASSERT_THAT(named.AllReduce("a", values, {.op = ReduceOp::kAdasum}).Wait(), IsOk());
      EXPECT_EQ(values, expected);
    }
  });
}

TEST_P(Named, AFrozenOrderTakesNoMessages) {
  Run([](Communicator& world, NamedOperations& named) {
    const auto step = [&](int number) {
      auto a = Values(world.rank(), 1, number), b = Values(world.rank(), 9, number);
      Gathered gathered;
      const std::vector<int64_t> mine(static_cast<size_t>(world.rank() + 1), world.rank());
      std::vector<Work> works = {named.AllReduce("a", a), named.AllGather("g", mine, gathered),
                                 named.AllReduce("b", b, {.op = ReduceOp::kMax})};
      for (Work& work : works) ASSERT_THAT(work.Wait(), IsOk());
      ASSERT_EQ(a[3], SumOf(world.size(), 1, number, 3));
      ASSERT_EQ(b[3], Values(world.size() - 1, 9, number)[3]);
      ASSERT_EQ(gathered.counts.back(), world.size());
      int64_t last = 0;
      std::memcpy(&last, gathered.bytes.data() + gathered.bytes.size() - 8, 8);
      ASSERT_EQ(last, world.size() - 1);
    };
    // A rank that is starved for 100 ms amid its submissions thaws the order; then the next steps are looked at.
    int64_t calm = 0;
    for (int number = 0; number < 1000 && calm == 0; number += 56) {
      for (int i = 0; i < 6; ++i) step(number + i);
      const NamedStatistics before = named.statistics();
      for (int i = 6; i < 56; ++i) step(number + i);
      const NamedStatistics after = named.statistics();
      EXPECT_EQ(after.operations - before.operations, 150);
      calm = after.frozen_operations - before.frozen_operations == 150 && after.freezes == before.freezes ? 1 : 0;
      if (calm == 1) {
        EXPECT_EQ(after.control_messages, before.control_messages) << "of rank " << world.rank();
        EXPECT_EQ(after.agreements - before.agreements, world.node_count() > 1 ? 150 : 0);
      }
      // Also so that no rank goes on, and thaws the order, while others still count.
      ASSERT_THAT(world.AllReduce(std::span(&calm, 1), {.op = ReduceOp::kMin}), IsOk());
    }
    EXPECT_EQ(calm, 1) << named.statistics().last_deviation;

    // One rank leaves the order: all go on, and say why.
    auto more = Values(world.rank(), 2, 0), a = Values(world.rank(), 1, 0);
    Work first = named.AllReduce("more", more);
    Work second = named.AllReduce("a", a);
    ASSERT_THAT(first.Wait(), IsOk());
    ASSERT_THAT(second.Wait(), IsOk());
    ASSERT_EQ(more[5], SumOf(world.size(), 2, 0, 5));
    ASSERT_EQ(a[5], SumOf(world.size(), 1, 0, 5));
    EXPECT_THAT(named.statistics().last_deviation, testing::HasSubstr("'more'"));
  });
}

TEST_P(Named, GroupsBroadcastsAndObjects) {
  Run([](Communicator& world, NamedOperations& named) {
    const bool odd = world.rank() % 2 == 1;
    auto a = Values(world.rank(), 3, 0), b = Values(world.rank(), 4, 0), alone = Values(world.rank(), 5, 0);
    const std::vector<NamedTensor> group = {{"a", a}, {"b", b}};
    Work grouped, single;
    if (odd) single = named.AllReduce("alone", alone, {.op = ReduceOp::kAverage});
    grouped = named.AllReduce(group);
    if (!odd) single = named.AllReduce("alone", alone, {.op = ReduceOp::kAverage});
    ASSERT_THAT(grouped.Wait(), IsOk());
    ASSERT_THAT(single.Wait(), IsOk());
    EXPECT_EQ(a[7], SumOf(world.size(), 3, 0, 7));
    EXPECT_EQ(b[7], SumOf(world.size(), 4, 0, 7));
    EXPECT_FLOAT_EQ(alone[7], SumOf(world.size(), 5, 0, 7) / static_cast<float>(world.size()));

    auto weights = Values(world.rank(), 6, 0), bias = Values(world.rank(), 2, 0);
    std::vector<NamedTensor> parameters = {{"weights", weights}, {"bias", bias}};
    if (odd) std::swap(parameters[0], parameters[1]);
    const int root = world.size() - 1;
    ASSERT_THAT(named.BroadcastParameters(parameters, root), IsOk());
    EXPECT_EQ(weights, Values(root, 6, 0));
    EXPECT_EQ(bias, Values(root, 2, 0));

    std::vector<std::byte> object(static_cast<size_t>(world.rank() == root ? 1001 : world.rank()), std::byte(7));
    ASSERT_THAT(named.BroadcastObject("state", object, root), IsOk());
    EXPECT_EQ(object, std::vector<std::byte>(1001, std::byte(7)));
    ASSERT_THAT(named.BroadcastObject("state", object, 0), IsOk());
    EXPECT_EQ(object.size(), size_t{1001});
  });
}

TEST_P(Named, AJoinedRankContributesWhatIsNeutral) {
  Run([](Communicator& world, NamedOperations& named) {
    // Rank r has r + 5 steps: ranks that have joined are left out of averages.
    const int size = world.size(), me = world.rank();
    for (int step = 0; step < me + 5; ++step) {
      const int first = std::max(0, step - 4);  // the ranks from here on have data
      const auto has = static_cast<float>(size - first);
      std::vector<float> sum(3, static_cast<float>(me + 1)), average = sum, least = sum, product(2, 2.0f);
      std::vector<int32_t> integers(3, me + 2);
      Gathered gathered;
      const std::vector<int16_t> mine(static_cast<size_t>(step + me), static_cast<int16_t>(me));
      std::vector<Work> works = {named.AllReduce("sum", sum),
                                 named.AllReduce("average", average, {.op = ReduceOp::kAverage}),
                                 named.AllReduce("least", least, {.op = ReduceOp::kMin}),
                                 named.AllReduce("product", product, {.op = ReduceOp::kProduct}),
                                 named.AllReduce("integers", integers, {.op = ReduceOp::kAverage}),
                                 named.AllGather("gathered", mine, gathered)};
      for (Work& work : works) ASSERT_THAT(work.Wait(), IsOk());
      float expected = 0;
      for (int rank = first; rank < size; ++rank) expected += static_cast<float>(rank + 1);
      EXPECT_EQ(sum[2], expected);
      EXPECT_FLOAT_EQ(average[2], expected / has);
      EXPECT_EQ(least[2], static_cast<float>(first + 1));
      EXPECT_EQ(product[1], static_cast<float>(1 << (size - first)));
      EXPECT_EQ(integers[2], (static_cast<int>(expected) + size - first) / (size - first));
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(gathered.counts[static_cast<size_t>(rank)], rank < first ? 0 : step + rank);
      }
    }
    int last = -1;
    Work join = named.Join(&last);
    ASSERT_THAT(join.Wait(), IsOk());
    EXPECT_EQ(last, size - 1);
    float one = 1;
    ASSERT_THAT(named.AllReduce("after", std::span(&one, 1)).Wait(), IsOk());
    EXPECT_EQ(one, static_cast<float>(size));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Named,
                         testing::Values(std::tuple(Mode::kThreads, HostSizes{1}),
                                         std::tuple(Mode::kThreads, HostSizes{3}),
                                         std::tuple(Mode::kProcesses, HostSizes{2}),
                                         std::tuple(Mode::kThreads, HostSizes{1, 1}),
                                         std::tuple(Mode::kProcesses, HostSizes{2, 1})),
                         [](const auto& info) {
                           std::string name = support::ModeName(std::get<0>(info.param));
                           for (const int size : std::get<1>(info.param)) absl::StrAppend(&name, "_", size);
                           return name;
                         });

}  // namespace
}  // namespace gyre
