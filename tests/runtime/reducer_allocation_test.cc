// Once the plan stays, a step within a host allocates nothing: neither the program's thread nor the background one.
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

}  // namespace
}  // namespace gyre
