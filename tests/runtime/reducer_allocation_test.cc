// Once the plan stays, a step allocates nothing: neither the program's thread nor the background one.
#include <chrono>
#include <thread>

#include "runtime/allocation_counter.h"
#include "runtime/reducer_fixture.h"

namespace gyre {
namespace {

using support::AllocationCount;
using support::IsOk;
using support::Parameter;
using support::Rank;
using support::Trainer;

// Processes rather than threads: what is counted is one rank's.
TEST(ReducerAllocations, AreNoneOnceThePlanStays) {
  support::RunProcesses(2, [](const Rank& rank) {
    Trainer trainer(rank, std::vector<Parameter>(40, {{1000}}));
    trainer.parameters.push_back({{300'000}});
    trainer.parameters.push_back({{77}, DType::kBF16});
    ASSERT_THAT(trainer.Start({.max_norm = 1.0, .skip_non_finite = true, .bucket_bytes = 20'000}), IsOk());
    const auto give = [&](int index) {
      // Even ones in shared memory, odd ones in the program's, which then stays as it was.
      return index % 2 == 0
                 ? trainer.reducer->Ready(index)
                 : trainer.reducer->Ready(index, trainer.own(static_cast<size_t>(
                                                     std::ranges::find(trainer.index, index) - trainer.index.begin())));
    };
    constexpr int kWarmUp = 10, kCounted = 200;
    int64_t before = 0;
    for (int step = 1; step <= kWarmUp + kCounted; ++step) {
      if (step == kWarmUp + 1) before = AllocationCount();
      for (int i = 0; i < trainer.reducer->size(); ++i) {
        // Half of the steps have time to be overtaken by the background thread.
        if (step % 2 == 0 && i == 30) std::this_thread::yield();
        const absl::Status given = give(i);
        if (!given.ok()) FAIL() << given;
      }
      const auto summary = trainer.reducer->Wait();
      if (!summary.ok()) FAIL() << summary.status();
      if (step > 2 && (summary->control_messages != 0 || summary->calls < 3)) FAIL();
    }
    EXPECT_EQ(AllocationCount() - before, 0);
    ASSERT_THAT(trainer.runtime->world().Barrier(), IsOk());  // nobody leaves while others count
  });
}

// Of a plan that was found by trying others, likewise.
TEST(ReducerAllocations, AreNoneAfterTuning) {
  support::RunProcesses(2, [](const Rank& rank) {
    Trainer trainer(rank, std::vector<Parameter>(40, {{65'000}}));
    ASSERT_THAT(trainer.Start({.tune = true}), IsOk());
    constexpr int kCounted = 100, kMost = 500;
    int64_t before = 0;
    int steps = 0, settled = 0;
    while (settled == 0 || steps < settled + kCounted) {
      if (++steps > kMost) FAIL() << "no plan stays";
      for (int i = 0; i < trainer.reducer->size(); ++i) {
        if (!trainer.reducer->Ready(i).ok()) FAIL();
      }
      const auto summary = trainer.reducer->Wait();
      if (!summary.ok()) FAIL() << summary.status();
      if (settled > 0 && summary->control_messages != 0) FAIL() << steps;
      if (settled > 0 || !trainer.reducer->planned()) continue;
      settled = steps;
      before = AllocationCount();
    }
    EXPECT_GE(settled, 4 + 12) << "nothing was tried";
    EXPECT_EQ(AllocationCount() - before, 0);
    ASSERT_THAT(trainer.runtime->world().Barrier(), IsOk());
  });
}

// Between hosts: one rank each, and two of which share memory. By nominal costs, so that no call corrects
// what algorithms are chosen by.
TEST(ReducerAllocations, AreNoneOverHosts) {
  for (const std::vector<int>& hosts : {std::vector<int>{1, 1}, {2, 1}}) {
    support::RunProcesses(hosts[0] + hosts[1], [&](const Rank& rank) {
      Trainer trainer(rank, std::vector<Parameter>(20, {{1000}}));
      trainer.parameters.push_back({{3'000'000}});
      RuntimeOptions options = JobOptions(rank, hosts);
      options.algorithms = "nominal";
      options.heartbeat_interval = std::chrono::minutes(1);  // they allocate, whatever the steps do
      options.heartbeat_timeout = std::chrono::milliseconds(0);
      ASSERT_THAT(trainer.StartIn(JoinJob(rank, options), {.max_norm = 1.0, .bucket_bytes = 20'000}), IsOk());
      constexpr int kWarmUp = 20, kCounted = 60;
      int64_t before = 0;
      for (int step = 1; step <= kWarmUp + kCounted; ++step) {
        if (step == kWarmUp + 1) before = AllocationCount();
        for (int i = 0; i < trainer.reducer->size(); ++i) {
          if (step % 2 == 0 && i == 10) std::this_thread::yield();
          if (!trainer.reducer->Ready(i).ok()) FAIL();
        }
        const auto summary = trainer.reducer->Wait();
        if (!summary.ok()) FAIL() << summary.status();
        if (step > 2 && (summary->control_messages != 0 || summary->calls < 3)) FAIL();
      }
      EXPECT_EQ(AllocationCount() - before, 0);
      ASSERT_THAT(trainer.runtime->world().Barrier(), IsOk());
    });
  }
}

// Of a plan by need, where each gradient is waited for: within a host and between two.
TEST(ReducerAllocations, AreNoneOfWaitsForEachBySlices) {
  for (const std::vector<int>& hosts : {std::vector<int>{2}, {1, 1}}) {
    support::RunProcesses(2, [&](const Rank& rank) {
      Trainer trainer(rank, {{{200'003}}, {{1000}}, {{0}}});
      RuntimeOptions options = JobOptions(rank, hosts);
      options.algorithms = "nominal";
      options.heartbeat_interval = std::chrono::minutes(1);
      options.heartbeat_timeout = std::chrono::milliseconds(0);
      const std::string plan = ToText(support::Sliced(trainer.parameters));
      ASSERT_THAT(trainer.StartIn(JoinJob(rank, options), {.plan = plan}), IsOk());
      constexpr int kWarmUp = 20, kCounted = 100;
      int64_t before = 0;
      for (int step = 1; step <= kWarmUp + kCounted; ++step) {
        if (step == kWarmUp + 1) before = AllocationCount();
        for (const int index : trainer.index) {
          if (!trainer.reducer->Ready(index).ok()) FAIL();
        }
        for (const size_t p : {1, 2, 0}) {
          if (!trainer.reducer->WaitFor(trainer.index[p]).ok()) FAIL();
        }
        const auto summary = trainer.reducer->Wait();
        if (!summary.ok()) FAIL() << summary.status();
        if (summary->control_messages != 0 || summary->calls < 4) FAIL() << summary->calls;
      }
      EXPECT_EQ(AllocationCount() - before, 0);
      ASSERT_THAT(trainer.runtime->world().Barrier(), IsOk());
    });
  }
}

}  // namespace
}  // namespace gyre
