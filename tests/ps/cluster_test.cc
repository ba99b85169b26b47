#include "cluster.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gyre::ps {
namespace {

constexpr Consistency kEach[] = {{Mode::kSynchronous}, {Mode::kStale, 2}, {Mode::kAsynchronous}};

TEST(ClusterTest, FaultlessRunsEndInTheSameModel) {
  for (const Consistency& consistency : kEach) {
    Cluster cluster(
        {.workers = 5, .servers = 3, .tensors = 7, .consistency = consistency, .steps = 20, .gather = true});
    ASSERT_EQ(cluster.Run(), "");
    if (consistency.mode == Mode::kSynchronous) {
      // Twenty means of five workers' gradients.
      for (const float value : cluster.final_model()) EXPECT_NEAR(value, 4.0f, 1e-4f);
    }
  }
}

TEST(ClusterTest, TablesAreTrainedBesideWeightsOrAlone) {
  for (const Consistency& consistency : kEach) {
    for (const int tensors : {0, 3}) {
      Cluster cluster({.workers = 5,
                       .servers = 3,
                       .tensors = tensors,
                       .tables = 2,
                       .consistency = consistency,
                       .steps = 20,
                       .gather = true});
      ASSERT_EQ(cluster.Run(), "");
      EXPECT_EQ(std::ssize(cluster.final_model()), 5 * (tensors + 2 * 3));
      if (consistency.mode != Mode::kSynchronous) continue;  // who comes late has made fewer steps
      for (const float value : cluster.final_model()) EXPECT_NEAR(value, 4.0f, 1e-4f);
    }
  }
}

TEST(ClusterTest, NoMoreIsUnderWayThanTheWindowHolds) {
  for (const Consistency& consistency : kEach) {
    const Plan plan{.workers = 3, .tensors = 8, .consistency = consistency, .steps = 20, .gather = true};
    for (const auto& [window, most] : {std::pair<size_t, size_t>{1, 1}, {3 * 3 * sizeof(float), 3}, {1 << 20, 8}}) {
      for (size_t Plan::*const which : {&Plan::window, &Plan::window_of_all}) {
        Plan narrow = plan;
        narrow.*which = window;
        Cluster cluster(narrow);
        ASSERT_EQ(cluster.Run(), "");
        EXPECT_EQ(cluster.most_under_way(), most);
      }
    }
    Plan near = plan;
    near.way = Way::kHost;
    near.window_of_all = 1;
    Cluster on_host(near);
    ASSERT_EQ(on_host.Run(), "");
    EXPECT_EQ(on_host.most_under_way(), 8);
    near.way = Way::kMemory;
    near.window = 1;
    Cluster in_memory(near);
    ASSERT_EQ(in_memory.Run(), "");
    EXPECT_EQ(in_memory.most_under_way(), 8);
  }
}

TEST(ClusterTest, OneWorkerOneServerOneStep) {
  for (const Consistency& consistency : kEach) {
    Cluster cluster({.workers = 1, .tensors = 1, .consistency = consistency, .steps = 1});
    ASSERT_EQ(cluster.Run(), "");
    EXPECT_EQ(cluster.final_model(), std::vector<float>{1});
  }
}

TEST(ClusterTest, MoreServersThanPartitions) {
  Cluster cluster({.workers = 2, .servers = 5, .tensors = 1});
  EXPECT_EQ(cluster.Run(), "");
}

TEST(ClusterTest, SameSeedSameBytes) {
  for (uint64_t seed = 500; seed < 510; ++seed) {
    Cluster first(RandomPlan(seed)), second(RandomPlan(seed)), other(RandomPlan(seed + 1000));
    EXPECT_EQ(first.Run(), second.Run());
    EXPECT_EQ(first.trace(), second.trace());
    other.Run();
    EXPECT_NE(first.trace(), other.trace());
  }
}

// Servers die again and again, from machine to torn disk; workers live and keep what they pushed: nothing is lost, and
// synchronous training ends in the very bits of a run without faults.
TEST(ClusterTest, ServersThatDieCostNothingWhileWorkersLive) {
  Plan plan{
      .workers = 4, .servers = 2, .tensors = 4, .steps = 40, .gather = true, .local_steps = 3, .snapshot_ms = 150};
  plan.tables = 1;
  Cluster calm(plan);
  ASSERT_EQ(calm.Run(), "");
  using Kind = Blow::Kind;
  const Kind kinds[] = {Kind::kKill, Kind::kCrash, Kind::kTear, Kind::kReplace};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    plan.seed = seed;
    plan.blows.clear();
    for (int i = 0; i < 6; ++i) {
      plan.blows.push_back({kinds[(seed + static_cast<uint64_t>(i)) % 4], true, i % 2, 0, 100 + 130 * i, 300});
    }
    Cluster stormy(plan);
    ASSERT_EQ(stormy.Run(), "") << seed;
    EXPECT_EQ(stormy.final_model(), calm.final_model()) << seed;
  }
}

// The same where nobody keeps what was acknowledged, and disks are lost with the processes: the next server has it.
TEST(ClusterTest, ServersThatAreLostWithTheirDisksCostNothingWithReplicas) {
  Plan plan{.workers = 4, .servers = 3, .tensors = 5, .steps = 40, .gather = true, .replicas = true, .retain = 0};
  for (const Consistency& consistency : kEach) {
    plan.consistency = consistency;
    plan.blows.clear();
    plan.seed = 0;
    Cluster calm(plan);
    ASSERT_EQ(calm.Run(), "");
    EXPECT_EQ(calm.recoveries(), 0);
    for (uint64_t seed = 0; seed < 10; ++seed) {
      plan.seed = seed;
      plan.blows.clear();
      for (int i = 0; i < 3; ++i) {
        const auto late = static_cast<int64_t>(seed) * 17;
        plan.blows.push_back({Blow::Kind::kLose, true, (i + static_cast<int>(seed)) % 3, 0, 150 + 900 * i + late, 100});
      }
      Cluster stormy(plan);
      ASSERT_EQ(stormy.Run(), "") << seed;
      EXPECT_GT(stormy.recoveries(), 0) << seed;
      if (consistency.mode != Mode::kSynchronous) continue;
      EXPECT_EQ(stormy.final_model(), calm.final_model()) << seed;
    }
  }
}

TEST(ClusterTest, AWorkerGoesOnAloneForAWhileAndThenSaysWhyNot) {
  Plan plan{.workers = 2, .steps = 30, .local_steps = 4, .blows = {{Blow::Kind::kKill, true, 0, 0, 200, 6000}}};
  Cluster cluster(plan);
  ASSERT_EQ(cluster.Run(), "");
  EXPECT_TRUE(cluster.ever_local());
  EXPECT_GE(cluster.now().time_since_epoch(), std::chrono::seconds(6));
}

TEST(ClusterTest, TheReasonToWaitNamesTheServer) {
  // It stays away for longer than the simulation has patience.
  Plan plan{.workers = 1, .steps = 30, .local_steps = 4, .drop = 1, .blows = {}};
  Cluster lost(plan);
  EXPECT_NE(lost.Run().find("server 0 has not answered yet"), std::string::npos);
}

// 100 of 200 workers are preempted and come back: training goes on, and all get to the end.
TEST(ClusterTest, HalfTheWorkersArePreempted) {
  Plan plan{
      .workers = 200, .servers = 2, .tensors = 2, .consistency = {Mode::kStale, 3}, .steps = 10, .compute_ms = 200};
  for (int worker = 0; worker < 200; worker += 2) plan.blows.push_back({.whom = worker, .at = 400, .lasts = 2500});
  Cluster cluster(plan);
  EXPECT_EQ(cluster.Run(), "");
}

TEST(ClusterTest, RandomFaults) {
  for (uint64_t seed = 10'000; seed < 10'100; ++seed) ASSERT_EQ(Cluster(RandomPlan(seed)).Run(), "") << seed;
}

// Each guard is needed: without it some of these runs go wrong, and in the way that it keeps them from.
int Failures(void (*change)(Guards&), const std::string& expected) {
  int failures = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Plan plan = RandomPlan(seed);
    change(plan.guards);
    failures += Cluster(plan).Run().find(expected) == std::string::npos ? 0 : 1;
  }
  return failures;
}

TEST(ClusterTest, WithoutTheDuplicateCheckPushesAreAppliedTwice) {
  EXPECT_GT(Failures([](Guards& guards) { guards.duplicates = false; }, "applied twice"), 0);
}

TEST(ClusterTest, WithoutTheFenceThePastIsApplied) {
  EXPECT_GT(Failures([](Guards& guards) { guards.fence = false; }, "but fenced"), 0);
}

TEST(ClusterTest, WithoutHeartbeatsTheDeadAreWaitedFor) {
  EXPECT_GT(Failures([](Guards& guards) { guards.heartbeat = false; }, "no end"), 0);
}

TEST(ClusterTest, WithoutTheForwardedGradientsTheCopyIsAnotherOne) {
  EXPECT_GT(Failures([](Guards& guards) { guards.forward = false; }, "the copy of a server is another one"), 0);
}

TEST(ClusterTest, WithoutTheWaitForTheNextServerAcknowledgedPushesAreLost) {
  EXPECT_GT(Failures([](Guards& guards) { guards.confirm = false; }, "not at the next server"), 0);
}

}  // namespace
}  // namespace gyre::ps
