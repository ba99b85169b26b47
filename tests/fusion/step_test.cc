// The parts of a step: what is ready, where it lies, and by which calls it is reduced.
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fusion/gradients.h"
#include "fusion/layout.h"
#include "fusion/readiness.h"
#include "fusion/ready_times.h"
#include "fusion/registry.h"
#include "fusion/tensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::fusion {
namespace {

using support::IsOk;
using support::MatchesStatus;
using testing::ElementsAre;

Plan PlanInOrder(const std::vector<TensorInfo>& tensors, int64_t bytes) {
  std::vector<int> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  return PlanBySize(tensors, order, bytes);
}

std::vector<std::vector<int>> MembersOf(const std::vector<Part>& parts) {
  std::vector<std::vector<int>> members;
  for (const Part& part : parts) members.push_back(part.tensors);
  return members;
}

TEST(Parts, ABucketThatLiesTogetherIsOneCall) {
  const auto tensors = Floats({10, 33, 1, 64});
  const Plan plan = PlanInOrder(tensors, 1 << 20);
  const Layout layout = MakeLayout(tensors, plan);
  EXPECT_EQ(layout.bytes, 128 + 256 + 128 + 256);
  const auto parts = MakeParts(tensors, plan, layout, 1 << 20);
  EXPECT_THAT(MembersOf(parts), ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_EQ(parts[0].begin, 0);
  EXPECT_EQ(parts[0].count, 32 + 64 + 32 + 64);
}

TEST(Parts, LargeTensorsHaveTheirOwnAndEmptyOnesNone) {
  const auto tensors = Floats({10, 0, 100, 20, 30, 0});
  const Plan plan = PlanInOrder(tensors, 1 << 20);
  const auto parts = MakeParts(tensors, plan, MakeLayout(tensors, plan), 400);
  EXPECT_THAT(MembersOf(parts), ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(3, 4)));
}

TEST(Parts, ALaterPlanFindsTensorsWhereTheFirstOnePutThem) {
  const auto tensors = Floats({32, 32, 32, 32, 32});
  const Layout layout = MakeLayout(tensors, PlanInOrder(tensors, 1 << 20));
  const std::vector<int> order = {4, 1, 2, 0, 3};
  const Plan later = PlanBySize(tensors, order, 4 * 128 + 127);  // 4 1 2 0, then 3
  EXPECT_THAT(MembersOf(MakeParts(tensors, later, layout, 1 << 20)),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(4), ElementsAre(3)));
}

TEST(Parts, CoverEveryElementOnceForRandomPlans) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 100; ++round) {
    std::vector<TensorInfo> tensors = Floats(std::vector<int64_t>(1 + random() % 30));
    for (TensorInfo& tensor : tensors) {
      tensor.count = static_cast<int64_t>(random() % 300);
      if (random() % 3 == 0) tensor.dtype = DType::kF16;
    }
    const Layout layout = MakeLayout(tensors, PlanInOrder(tensors, 2000));
    std::vector<int> order(tensors.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    const Plan plan = PlanBySize(tensors, order, 1000);
    std::vector<int> covered(static_cast<size_t>(layout.bytes));
    for (const Part& part : MakeParts(tensors, plan, layout, 700)) {
      for (const int tensor : part.tensors) EXPECT_EQ(tensors[static_cast<size_t>(tensor)].dtype, part.dtype);
      for (int64_t byte = 0; byte < part.count * DTypeSize(part.dtype); ++byte) {
        ++covered[static_cast<size_t>(part.begin + byte)];
      }
    }
    for (const int times : covered) EXPECT_LE(times, 1);
    for (size_t t = 0; t < tensors.size(); ++t) {
      for (int64_t byte = 0; byte < tensors[t].bytes(); ++byte) {
        ASSERT_EQ(covered[static_cast<size_t>(layout.begins[t] + byte)], 1);
      }
    }
  }
}

TEST(Readiness, TellsWhenABucketIsFull) {
  const auto tensors = Floats({100, 100, 100, 1});
  const Plan plan = PlanInOrder(tensors, 800);
  ASSERT_EQ(plan.buckets.size(), 3u);  // 0 1, 2, 3
  Readiness readiness(4);
  readiness.Follow(plan);
  for (int step = 0; step < 2; ++step) {
    EXPECT_TRUE(readiness.Claim(1));
    EXPECT_FALSE(readiness.Claim(1));
    EXPECT_FALSE(readiness.Complete(1).filled);
    EXPECT_FALSE(readiness.full(0));
    EXPECT_TRUE(readiness.Claim(3));
    EXPECT_TRUE(readiness.Complete(3).filled);
    EXPECT_TRUE(readiness.full(2));
    EXPECT_TRUE(readiness.Claim(0));
    EXPECT_TRUE(readiness.claimed(0));
    EXPECT_FALSE(readiness.full(0));
    EXPECT_EQ(readiness.remaining(), 2);
    EXPECT_TRUE(readiness.Complete(0).filled);
    EXPECT_TRUE(readiness.full(0));
    EXPECT_TRUE(readiness.Claim(2));
    EXPECT_TRUE(readiness.Complete(2).filled);
    EXPECT_EQ(readiness.remaining(), 0);
    EXPECT_THAT(readiness.Order(), ElementsAre(1, 3, 0, 2));
    readiness.Restart();
    EXPECT_FALSE(readiness.claimed(0));
    EXPECT_EQ(readiness.remaining(), 4);
  }
}

TEST(Readiness, GivesTheBucketToWhoArrivesLast) {
  const auto tensors = Floats({100, 100, 100});
  Readiness readiness(3);
  readiness.Follow(PlanInOrder(tensors, 800));  // 0 1, 2
  for (int step = 0; step < 2; ++step) {
    for (const int tensor : {0, 1, 2}) EXPECT_TRUE(readiness.Claim(tensor));
    EXPECT_THAT(readiness.Arrive(1), ElementsAre());
    EXPECT_THAT(readiness.Arrive(2), ElementsAre(2));
    EXPECT_FALSE(readiness.Complete(1).filled);
    EXPECT_THAT(readiness.Arrive(0), ElementsAre(0, 1));
    EXPECT_TRUE(readiness.Complete(0).filled);
    readiness.Restart();
  }
}

TEST(Readiness, EachBucketIsFilledByOneOfManyThreads) {
  const auto tensors = Floats(std::vector<int64_t>(300, 8));
  const Plan plan = PlanInOrder(tensors, 320);
  Readiness readiness(300);
  readiness.Follow(plan);
  std::atomic<int> filled{0}, claimed{0}, lasts{0}, whole{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int tensor = 0; tensor < 300; ++tensor) {
        if (!readiness.Claim(tensor)) continue;
        ++claimed;
        if (!readiness.Arrive(tensor).empty()) ++whole;
        const auto [fills, first_full, last] = readiness.Complete(tensor);
        if (fills) ++filled;
        if (last) ++lasts;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(claimed, 300);
  EXPECT_EQ(filled, static_cast<int>(plan.buckets.size()));
  EXPECT_EQ(whole, static_cast<int>(plan.buckets.size()));
  EXPECT_EQ(lasts, 1);
  EXPECT_EQ(readiness.remaining(), 0);
}

TEST(ReadyTimes, AreMediansOfTheStepsThatCount) {
  ReadyTimes times(2);
  const double recorded[][2] = {{9, 9}, {1, 5}, {80, 6}, {2, 4}};
  for (int step = 0; const auto& each : recorded) {
    times.Record(1, each[1]);
    times.Record(0, each[0]);
    times.EndStep(step++ > 0);
  }
  EXPECT_THAT(times.Median(), ElementsAre(2, 5));
  EXPECT_TRUE(ReadyTimes(0).Median().empty());
}

TEST(Gradients, LargeOnesAreReducedWhereTheyAre) {
  const auto tensors = Floats({10, 100});
  const Plan plan = PlanInOrder(tensors, 1 << 20);
  const Layout layout = MakeLayout(tensors, plan);
  const auto parts = MakeParts(tensors, plan, layout, 400);
  ASSERT_EQ(parts.size(), 2u);
  std::vector<std::byte> memory(static_cast<size_t>(layout.bytes));
  Gradients gradients(tensors, layout, memory.data(), 400, 1);
  std::vector<float> small(10, 1), large(100, 2);
  std::vector<double> other(100, 3);
  gradients.Give(0, small);
  gradients.Give(1, large);
  EXPECT_EQ(gradients.BufferOf(parts[0]).data, gradients.home(0).data);
  EXPECT_EQ(static_cast<float*>(gradients.home(0).data)[9], 1);
  EXPECT_EQ(gradients.BufferOf(parts[1]).data, large.data());
  static_cast<float*>(gradients.home(0).data)[9] = 5;  // as if reduced
  gradients.Deliver(parts[0]);
  gradients.Deliver(parts[1]);
  EXPECT_EQ(small[9], 5);
  EXPECT_EQ(large[99], 2);
  gradients.Restart();
  gradients.Give(1, other);  // of another dtype: by way of its home
  EXPECT_EQ(gradients.BufferOf(parts[1]).data, gradients.home(1).data);
  EXPECT_EQ(static_cast<float*>(gradients.home(1).data)[99], 3);
  gradients.Give(1);
  EXPECT_EQ(gradients.BufferOf(parts[1]).data, gradients.home(1).data);
  EXPECT_EQ(gradients.result(1).data, gradients.home(1).data);
}

// In its home or where the program gave it: slices of it, one after the other, and a result when all are there.
TEST(Gradients, SlicesMakeUpATensor) {
  const auto tensors = Floats({1000, 10});
  Plan plan = PlanInOrder(tensors, 1);
  const Layout layout = MakeLayout(tensors, plan);
  plan.turns = {{0, 0, 320}, {1, 0, 32}, {0, 320, 704}};
  ASSERT_TRUE(HasRightTurns(plan));
  for (const int64_t own_call_bytes : {400, 1 << 20}) {
    const auto parts = MakeParts(tensors, plan, layout, own_call_bytes);
    EXPECT_THAT(MembersOf(parts), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(0)));
    std::vector<std::byte> memory(static_cast<size_t>(layout.bytes));
    Gradients gradients(tensors, layout, memory.data(), own_call_bytes, 1);
    std::vector<float> large(1001), small(10);
    const TensorView given(large.data() + 1, 1000, DType::kF32);
    std::iota(large.begin(), large.end(), 0.0F);
    gradients.Give(0, given);
    gradients.Give(1, small);
    for (const Part& part : parts) {
      const TensorView buffer = gradients.BufferOf(part);
      ASSERT_EQ(buffer.count, part.count);
      if (part.tensors[0] == 0) {
        EXPECT_EQ(static_cast<float*>(buffer.data)[0], part.last ? 321 : 1);
      }
      for (int64_t i = 0; i < buffer.count; ++i) static_cast<float*>(buffer.data)[i] *= 2;  // reduces
      gradients.Deliver(part);
    }
    for (size_t i = 1; i < large.size(); ++i) ASSERT_EQ(large[i], 2 * static_cast<float>(i)) << own_call_bytes;
    EXPECT_EQ(large[0], 0);
  }
}

TEST(Registry, NamesStandInTheirOrderWhateverTheyWereAddedIn) {
  Registry one, other;
  const std::vector<int64_t> shape = {2, 3}, none = {};
  EXPECT_EQ(one.Add("b", shape, DType::kF32).value(), 0);
  EXPECT_EQ(one.Add("a\tb\n", none, DType::kF16).value(), 1);
  EXPECT_EQ(other.Add("a\tb\n", none, DType::kF16).value(), 0);
  EXPECT_EQ(other.Add("b", shape, DType::kF32).value(), 1);
  EXPECT_EQ(one.Describe("x"), other.Describe("x"));
  EXPECT_THAT(one.Places(), ElementsAre(1, 0));
  EXPECT_EQ(one.Tensors()[1].count, 6);
  EXPECT_EQ(Difference(one.Describe("x"), 0, other.Describe("x"), 1), "there is no difference");
  EXPECT_THAT(one.Add("b", shape, DType::kF32), MatchesStatus(absl::StatusCode::kInvalidArgument, "already"));
  EXPECT_THAT(one.Add("c", shape, DType::kBool), MatchesStatus(absl::StatusCode::kInvalidArgument, "bool"));
}

// A parameter of no rows has rows of some width, too.
TEST(Registry, NoPartOfAShapeIsTooLarge) {
  Registry registry;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{int64_t{1} << 21, int64_t{1} << 20},
                                            {0, int64_t{1} << 21, int64_t{1} << 20},
                                            {int64_t{1} << 21, 0, int64_t{1} << 20}}) {
    EXPECT_THAT(registry.AddRows("a", shape, DType::kF32),
                MatchesStatus(absl::StatusCode::kInvalidArgument, "at most 2^40"));
  }
  EXPECT_EQ(registry.AddRows("a", std::vector<int64_t>{0, int64_t{1} << 21, 0, int64_t{1} << 19}, DType::kF32).value(),
            0);
}

}  // namespace
}  // namespace gyre::fusion
