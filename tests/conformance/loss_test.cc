// Ranks that come late, die or freeze.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "conformance/failure_fixture.h"

namespace gyre {
namespace {

TEST_P(Failure, AQueuedCallKeepsItsDeadline) {
  support::RunRanks(GetParam(), 2, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    Communicator& world = runtime->world();
    if (rank == 1) {  // never calls
      std::this_thread::sleep_for(milliseconds(800));
      EXPECT_THAT(world.Barrier(), MatchesStatus(StatusCode::kAborted, "waited for earlier calls"));
      return;
    }
    const auto start = steady_clock::now();
    Work first = world.BarrierAsync({.timeout = seconds(20)});
    EXPECT_THAT(world.Barrier({.timeout = milliseconds(200)}),
                MatchesStatus(StatusCode::kDeadlineExceeded, "waited for earlier calls"));
    EXPECT_THAT(first.Wait(), MatchesStatus(StatusCode::kAborted, "waited for earlier calls"));
    EXPECT_LT(SecondsSince(start), 5);
    std::this_thread::sleep_for(milliseconds(1200));  // still there when rank 1 comes late
  });
}

TEST_P(Failure, TheLongestTimeoutIsNoTimeout) {
  support::RunRanks(GetParam(), 2, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    if (rank == 1) std::this_thread::sleep_for(milliseconds(300));
    EXPECT_THAT(runtime->world().Barrier({.timeout = milliseconds::max()}), IsOk());
    EXPECT_THAT(runtime->world().BarrierAsync({.timeout = milliseconds::max()}).Wait(), IsOk());
  });
}

// A rank starts an allreduce, leaves, and uses the memory for something else: nobody may write into it any more.
TEST_P(Failure, NobodyWritesIntoTheBuffersOfWhoHasLeft) {
  support::RunRanks(GetParam(), 2, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    Communicator& world = runtime->world();
    auto buffer = runtime->Allocate(100000);
    ASSERT_THAT(buffer, IsOk());
    auto floats = buffer->As<float>();
    std::ranges::fill(floats, 1.0f);
    ASSERT_THAT(world.Barrier(), IsOk());
    if (rank == 0) {
      Work work = world.AllReduceAsync(floats);
      std::this_thread::sleep_for(milliseconds(50));  // it is posted
      runtime->Shutdown();
      EXPECT_FALSE(work.Wait().ok());
      std::ranges::fill(floats, 5.0f);
      std::this_thread::sleep_for(milliseconds(600));
      EXPECT_TRUE(std::ranges::all_of(floats, [](float v) { return v == 5.0f; }));
    } else {
      std::this_thread::sleep_for(milliseconds(300));
      EXPECT_THAT(world.AllReduce(floats), MatchesStatus(StatusCode::kAborted, "rank 0 left"));
    }
  });
}

// However long the chain of ranks that give up because of each other, all name the first cause.
TEST(LostRank, TheCauseSurvivesALongChain) {
  support::RunProcesses(8, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    Communicator& world = runtime->world();
    std::vector<float> data(10);
    ASSERT_THAT(world.Barrier(), IsOk());
    if (rank == 7) return;  // does not come any more, and is gone after its exit
    std::this_thread::sleep_for(milliseconds(100 * (7 - rank)));
    EXPECT_THAT(world.Barrier({.timeout = seconds(10)}), MatchesStatus(StatusCode::kAborted, "rank 7"));
  });
}

TEST_P(Failure, ALateRankIsNamedAtTheDeadlineAndTheGroupIsGivenUp) {
  support::RunRanks(GetParam(), 3, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    Communicator& world = runtime->world();
    std::vector<float> data(100, 1);
    ASSERT_THAT(world.AllReduce(data), IsOk());
    const auto start = steady_clock::now();
    absl::Status status;
    if (rank == 2) {
      std::this_thread::sleep_for(milliseconds(900));
      status = world.AllReduce(data);
      EXPECT_THAT(status, MatchesStatus(StatusCode::kAborted, "rank 2 did not come"));
    } else {
      // Rank 0's deadline is first; rank 1 learns from it instead of waiting for its own.
      status = world.AllReduce(data, {.timeout = milliseconds(rank == 0 ? 300 : 20000)});
      EXPECT_THAT(status, MatchesStatus(rank == 0 ? StatusCode::kDeadlineExceeded : StatusCode::kAborted,
                                        "rank 2 did not come"));
      // Rank 1 may have begun later.
      EXPECT_GE(SecondsSince(start), rank == 0 ? 0.29 : 0);
      EXPECT_LT(SecondsSince(start), 5);
    }
    EXPECT_TRUE(absl::StrContains(status.message(), "allreduce(f32, 100 elements, sum)")) << status;
    EXPECT_THAT(world.Barrier(), MatchesStatus(StatusCode::kFailedPrecondition, "unusable"));
  });
}

TEST(LostRank, KillIsNoticedAtOnceByEverySurvivor) {
  support::ProcessGroup group(4, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    std::vector<float> data(50000, 1);
    auto last_success = steady_clock::now();
    absl::Status status;
    for (int64_t i = 0; status.ok(); ++i) {
      if (i == 100 && rank == 2) raise(SIGKILL);
      last_success = steady_clock::now();
      status = runtime->world().AllReduce(data, {.op = ReduceOp::kMax});
    }
    EXPECT_THAT(status, MatchesStatus(StatusCode::kAborted, "rank 2 was lost"));
    EXPECT_LT(SecondsSince(last_success), 1.0);
  });
  for (int r : {0, 1, 3}) group.ExpectSuccess(r);
  group.ExpectExitCode(2, 128 + SIGKILL);
}

TEST(LostRank, WhoFollowsTheLossIsNotBlamed) {
  // Rank 1 dies, rank 0 exits at once upon the loss; rank 2, who waits for rank 0 alone, still hears of rank 1.
  support::ProcessGroup group(3, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    Communicator& world = runtime->world();
    ASSERT_THAT(world.Barrier(), IsOk());
    std::vector<float> data(10);
    if (rank == 1) raise(SIGKILL);
    if (rank == 0) {
      EXPECT_THAT(world.Receive(data, 1), MatchesStatus(StatusCode::kAborted, "rank 1 was lost"));
      return;
    }
    EXPECT_THAT(world.Receive(data, 0), MatchesStatus(StatusCode::kAborted, "rank 1 was lost"));
  });
  group.ExpectSuccess(0);
  group.ExpectSuccess(2);
  group.ExpectExitCode(1, 128 + SIGKILL);
}

TEST(LostRank, AFrozenRankIsReportedWithinOneAndAHalfSeconds) {
  support::ProcessGroup group(3, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    std::vector<float> data(1000, 1);
    auto last_success = steady_clock::now();
    absl::Status status;
    for (int64_t i = 0; status.ok(); ++i) {
      if (i == 100 && rank == 1) raise(SIGSTOP);
      last_success = steady_clock::now();
      status = runtime->world().AllReduce(data, {.op = ReduceOp::kMax});
    }
    EXPECT_THAT(status, MatchesStatus(StatusCode::kAborted, rank == 1 ? "rank" : "rank 1 was lost: no heartbeat"));
    if (rank != 1) {
      EXPECT_LT(SecondsSince(last_success), 1.5);
    }
  });
  group.ExpectSuccess(0);
  group.ExpectSuccess(2);
  group[1].Signal(SIGCONT);  // the zombie finds that it was given up
  group.ExpectSuccess(1);
}

TEST(LostRank, GroupsWithoutItGoOn) {
  support::ProcessGroup group(3, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    auto pair = runtime->world().Split(rank == 1 ? std::vector<int>{1} : std::vector<int>{0, 2});
    ASSERT_THAT(pair, IsOk());
    ASSERT_THAT(runtime->world().Barrier(), IsOk());
    if (rank == 1) raise(SIGKILL);
    EXPECT_THAT(runtime->world().Barrier(), MatchesStatus(StatusCode::kAborted, "rank 1 was lost"));
    std::vector<float> data(100000, 1);
    for (int i = 0; i < 10; ++i) EXPECT_THAT((*pair)->AllReduce(data, {.op = ReduceOp::kMax}), IsOk());
  });
  group.ExpectSuccess(0);
  group.ExpectSuccess(2);
  group.ExpectExitCode(1, 128 + SIGKILL);
}

TEST(LostRank, ARankThatNeverCameIsNamedAtTheStart) {
  support::RunProcesses(2, [](const Rank& rank) {
    RuntimeOptions options = JobOptions({rank.rank, 3, rank.directory, rank.name});
    options.start_timeout = milliseconds(1500);
    const auto start = steady_clock::now();
    EXPECT_THAT(Runtime::Create(options), MatchesStatus(StatusCode::kDeadlineExceeded, "rank 2"));
    EXPECT_LT(SecondsSince(start), 2.5);
  });
}

}  // namespace
}  // namespace gyre
