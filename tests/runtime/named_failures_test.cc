// Operations by name that cannot go on: what each rank is told, and that it is told.
#include <chrono>
#include <future>
#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"
#include "support/usage.h"

namespace gyre {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using support::HostSizes;
using support::IsOk;
using support::MatchesStatus;

class NamedFailures : public testing::TestWithParam<HostSizes> {
 protected:
  void Run(const std::function<void(Runtime& runtime, std::unique_ptr<NamedOperations> named)>& body) {
    const HostSizes& hosts = GetParam();
    support::RunThreads(std::accumulate(hosts.begin(), hosts.end(), 0), [&](const support::Rank& rank) {
      const auto runtime = support::JoinJob(rank, support::JobOptions(rank, hosts));
      ASSERT_NE(runtime, nullptr);
      auto named = NamedOperations::Create(runtime->world());
      ASSERT_THAT(named, IsOk());
      body(*runtime, *std::move(named));
    });
  }
};

TEST_P(NamedFailures, DifferencesAreToldAllAndHarmNothing) {
  Run([](Runtime& runtime, std::unique_ptr<NamedOperations> named) {
    Communicator& world = runtime.world();
    const int me = world.rank(), last = world.size() - 1;
    for (int round = 0; round < 2; ++round) {  // before the order is frozen, and after
      std::vector<float> data(me == last ? 7 : 5, 1.0f), wrong(3);
      EXPECT_THAT(named->AllReduce("x", data).Wait(), MatchesStatus(StatusCode::kInvalidArgument, "7 elements"));
      EXPECT_EQ(data, std::vector<float>(data.size(), 1.0f));
      // Wrong arguments of one rank: the others need not wait for it.
      const Work work = named->AllReduce("y", wrong, {.prescale = me == last ? 2.0 : 1.0});
      Work copy = work;
      EXPECT_THAT(copy.Wait(), MatchesStatus(StatusCode::kInvalidArgument, ""));
      std::vector<int32_t> integers(4, 1);
      Work refused = named->AllReduce("z", integers, {.prescale = me == last ? 2.0 : 1.0});
      EXPECT_THAT(refused.Wait(), MatchesStatus(StatusCode::kInvalidArgument, me == last ? "floating-point" : "wrong"));
      // Nor is one harmed by what no rank can name.
      const auto unknown = static_cast<ReduceOp>(me == last ? 99 : 0);
      EXPECT_THAT(named->AllReduce("u", data, {.op = unknown}).Wait(),
                  MatchesStatus(StatusCode::kInvalidArgument, me == last ? "unknown" : "wrong"));
      for (int step = 0; step < 5; ++step) {
        float one = 1;
        ASSERT_THAT(named->AllReduce("good", std::span(&one, 1)).Wait(), IsOk());
        EXPECT_EQ(one, static_cast<float>(world.size()));
      }
    }
    EXPECT_GE(named->statistics().freezes, 1);
    ASSERT_THAT(world.Barrier(), IsOk());
  });
}

TEST_P(NamedFailures, NoRankWaitsForWhatIsLeftOfAGroup) {
  Run([](Runtime& runtime, std::unique_ptr<NamedOperations> named) {
    Communicator& world = runtime.world();
    // One of the group is refused, on every rank.
    std::vector<int32_t> integers(4, 1);
    std::vector<float> floats(4, 1.0f);
    Work refused = named->AllReduce(std::vector<NamedTensor>{{"a", integers}, {"b", floats}}, {.prescale = 2.0});
    EXPECT_THAT(refused.Wait(), MatchesStatus(StatusCode::kInvalidArgument, ""));
    if (world.size() == 1) return;
    // Ranks group the same names otherwise.
    std::vector<float> c(3, 1.0f), d(3, 1.0f);
    if (world.rank() == world.size() - 1) {
      Work grouped = named->AllReduce(std::vector<NamedTensor>{{"c", c}, {"d", d}});
      EXPECT_THAT(grouped.Wait(), MatchesStatus(StatusCode::kInvalidArgument, "'c' differs"));
    } else {
      Work first = named->AllReduce("c", c), second = named->AllReduce("d", d);
      EXPECT_THAT(first.Wait(), MatchesStatus(StatusCode::kInvalidArgument, "'c' differs"));
      EXPECT_THAT(second.Wait(), MatchesStatus(StatusCode::kInvalidArgument, "differs"));
    }
    ASSERT_THAT(world.Barrier(), IsOk());
    float one = 1;
    ASSERT_THAT(named->AllReduce("good", std::span(&one, 1)).Wait(), IsOk());
    EXPECT_EQ(one, static_cast<float>(world.size()));
    ASSERT_THAT(world.Barrier(), IsOk());
  });
}

TEST_P(NamedFailures, ANameInFlightIsRefusedHereAlone) {
  Run([](Runtime& runtime, std::unique_ptr<NamedOperations> named) {
    Communicator& world = runtime.world();
    float one = 1, other = 1;
    Work work;
    if (world.rank() == 0) {
      work = named->AllReduce("x", std::span(&one, 1));
      EXPECT_THAT(named->AllReduce("x", std::span(&other, 1)).Wait(), MatchesStatus(StatusCode::kAlreadyExists, "'x'"));
      ASSERT_THAT(world.Barrier(), IsOk());
    } else {
      ASSERT_THAT(world.Barrier(), IsOk());
      work = named->AllReduce("x", std::span(&one, 1));
    }
    EXPECT_THAT(work.Wait(), IsOk());
    EXPECT_EQ(one, static_cast<float>(world.size()));
    ASSERT_THAT(world.Barrier(), IsOk());
  });
}

TEST_P(NamedFailures, ARankThatDoesNotSubmitIsNamed) {
  Run([](Runtime& runtime, std::unique_ptr<NamedOperations> named) {
    Communicator& world = runtime.world();
    const int last = world.size() - 1;
    float one = 1;
    for (int step = 0; step < 5; ++step) {  // the second time the order is frozen
      if (step != 0 && step != 4) {
        for (int i = 0; i < 5; ++i) ASSERT_THAT(named->AllReduce("x", std::span(&one, 1)).Wait(), IsOk());
        continue;
      }
      if (world.rank() != last) {
        EXPECT_THAT(
            named->AllReduce("x", std::span(&one, 1), {.timeout = milliseconds(300)}).Wait(),
            MatchesStatus(StatusCode::kDeadlineExceeded,
                          absl::StrCat("'x' (allreduce(f32, 1 elements, sum)) was not submitted by rank ", last)));
      }
      ASSERT_THAT(world.Barrier(), IsOk());
      if (world.rank() == last) {
        EXPECT_THAT(named->AllReduce("x", std::span(&one, 1)).Wait(),
                    MatchesStatus(StatusCode::kDeadlineExceeded, "'x'"));
      }
    }
    EXPECT_THAT(named->AllReduce("y", std::span(&one, 1)).Wait(), IsOk());
    ASSERT_THAT(world.Barrier(), IsOk());
  });
}

// Of those that wait, rank 0 asks all others, and is asked by them.
TEST_P(NamedFailures, AnEndlessTimeoutNeverPasses) {
  Run([](Runtime& runtime, std::unique_ptr<NamedOperations> named) {
    float one = 1;
    for (const int late : {0, runtime.world().size() - 1}) {
      if (runtime.world().rank() == late) std::this_thread::sleep_for(milliseconds(200));
      EXPECT_THAT(named->AllReduce("x", std::span(&one, 1), {.timeout = milliseconds::max()}).Wait(), IsOk());
    }
    ASSERT_THAT(runtime.world().Barrier(), IsOk());
  });
}

TEST_P(NamedFailures, ADestroyedOneEndsAll) {
  Run([](Runtime& runtime, std::unique_ptr<NamedOperations> named) {
    Communicator& world = runtime.world();
    const int last = world.size() - 1;
    float one = 1;
    for (int step = 0; step < 6; ++step) ASSERT_THAT(named->AllReduce("x", std::span(&one, 1)).Wait(), IsOk());
    Work left = named->AllReduce(world.rank() == last ? "mine" : "yours", std::span(&one, 1));
    ASSERT_THAT(world.Barrier(), IsOk());  // all have submitted theirs
    if (world.rank() == last) {
      named.reset();
      EXPECT_THAT(left.Wait(), MatchesStatus(StatusCode::kFailedPrecondition, "destroyed"));
    } else {
      EXPECT_THAT(left.Wait(), MatchesStatus(StatusCode::kAborted, absl::StrCat("rank ", last, " destroyed")));
      EXPECT_THAT(named->AllReduce("x", std::span(&one, 1)).Wait(),
                  MatchesStatus(StatusCode::kFailedPrecondition, "destroyed"));
    }
    EXPECT_THAT(world.Barrier(), IsOk()) << "the world is none of theirs";
  });
}

TEST_P(NamedFailures, AShutdownEndsWhatIsPending) {
  Run([](Runtime& runtime, std::unique_ptr<NamedOperations> named) {
    float one = 1;
    Work never = named->AllReduce(absl::StrCat("x", runtime.world().rank()), std::span(&one, 1));
    ASSERT_THAT(runtime.world().Barrier(), IsOk());
    runtime.Shutdown();
    EXPECT_FALSE(never.Wait().ok());
    EXPECT_FALSE(named->AllReduce("y", std::span(&one, 1)).Wait().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, NamedFailures, testing::Values(HostSizes{3}, HostSizes{1, 1}),
                         [](const auto& info) { return info.param.size() == 1 ? "One" : "Two"; });

TEST(NamedIdle, TakesNoProcessorTime) {
  support::RunProcesses(2, [](const support::Rank& rank) {
    const auto runtime = support::JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    auto named = NamedOperations::Create(runtime->world());
    ASSERT_THAT(named, IsOk());
    float one = 1;
    for (int step = 0; step < 6; ++step) ASSERT_THAT((*named)->AllReduce("x", std::span(&one, 1)).Wait(), IsOk());
    const auto before = support::ProcessorTime();
    std::this_thread::sleep_for(seconds(2));
    EXPECT_LT(support::ProcessorTime() - before, milliseconds(100));
    ASSERT_THAT(runtime->world().Barrier(), IsOk());
  });
}

}  // namespace
}  // namespace gyre
