// What every implementation must do when calls differ, ranks die, freeze, come late or leave.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using support::IsOk;
using support::JobOptions;
using support::JoinJob;
using support::MatchesStatus;
using support::Mode;
using support::Rank;

double SecondsSince(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

class Failure : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(All, Failure, testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& info) { return support::ModeName(info.param); });

// --- Calls that differ ---

TEST_P(Failure, DifferentCallsAreAnErrorOnEveryRankThatNamesBothSides) {
  support::RunRanks(GetParam(), 3, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    Communicator& world = runtime->world();
    std::vector<float> floats(1000, 1), more(1001, 1);
    std::vector<double> doubles(1000, 1);
    const auto expect = [&](const absl::Status& status, const char* first, const char* second) {
      EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, first));
      EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, second));
      // In step still: the next call works.
      std::vector<int> one = {1};
      ASSERT_THAT(world.AllReduce(one), IsOk());
      ASSERT_EQ(one[0], 3);
    };
    const bool odd = rank == 1;
    expect(odd ? world.Broadcast(floats, 2) : world.AllReduce(floats), "rank 0 called allreduce(f32, 1000 elements, sum)",
           "rank 1 called broadcast(f32, 1000 elements, root 2)");
    expect(odd ? world.AllReduce(doubles) : world.AllReduce(floats), "rank 0 called allreduce(f32, 1000 elements",
           "rank 1 called allreduce(f64, 1000 elements");
    expect(world.AllReduce(odd ? more : floats), "1000 elements", "rank 1 called allreduce(f32, 1001 elements, sum)");
    expect(world.AllReduce(floats, {.op = odd ? ReduceOp::kMax : ReduceOp::kSum}), "sum", "max");
    expect(world.AllReduce(floats, {.prescale = odd ? 0.5 : 1.0}), "rank 0", "scales");
    expect(world.Broadcast(floats, odd ? 1 : 0), "root 0", "root 1");
    expect(odd ? world.Barrier() : world.AllReduce(floats), "allreduce", "rank 1 called barrier()");
    const std::vector<int64_t> counts = {400, 300, 300}, other = {300, 400, 300};
    std::vector<float> segment(rank == 0 ? 400 : 300), other_segment(rank == 1 ? 400 : 300);
    expect(odd ? world.AllGatherV(other_segment, other, floats) : world.AllGatherV(segment, counts, floats), "rank 0",
           "counts by rank differ");
    std::vector<int64_t> to = {1, 1, 1}, from = {1, 1, 1};
    if (odd) to[2] = 2;
    std::vector<float> out(odd ? 4 : 3), in(3);
    expect(world.AllToAllV(out, to, in, from), "rank 1 sends 2 elements to rank 2", "which expects 1");
    expect(world.Split(odd ? std::vector<int>{1, 2} : std::vector<int>{0, 1, 2}).status(), "rank 0's list [0, 1, 2]",
           "rank 1's [1, 2]");
    if (rank == 0) {
      EXPECT_THAT(world.Send(floats, 1), MatchesStatus(StatusCode::kInvalidArgument, "1001 elements"));
    } else if (rank == 1) {
      EXPECT_THAT(world.Receive(more, 0), MatchesStatus(StatusCode::kInvalidArgument, "rank 0 called send/receive(f32, 1000"));
    }
  });
}

TEST(Arguments, AreRefusedLocallyWithAReason) {
  auto runtime = Runtime::Create({.rank = 0, .size = 1});
  ASSERT_THAT(runtime, IsOk());
  Communicator& world = (*runtime)->world();
  std::vector<float> four(4), five(5);
  std::vector<bool> unused;
  std::vector<int> integers(4);
  const auto refused = [](const absl::Status& status, const char* why) {
    EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, why));
  };
  refused(world.AllReduce(four, five), "output has 5 elements; 4 expected");
  refused(world.AllReduce(four, TensorView(integers)), "differ in dtype");
  refused(world.AllReduce(TensorView(nullptr, 3, DType::kF32)), "null pointer");
  refused(world.AllReduce(TensorView(four.data(), -1, DType::kF32)), "negative count");
  refused(world.AllReduce(integers, {.prescale = 2}), "floating-point tensors only");
  refused(world.AllReduce(four, {.timeout = milliseconds(-1)}), "timeout must be positive");
  bool flags[2] = {};
  refused(world.AllReduce(TensorView(flags, 2, DType::kBool), {.op = ReduceOp::kAverage}), "no average");
  refused(world.Broadcast(four, 1), "root 1 is not a rank");
  refused(world.Send(four, 0), "to itself");
  refused(world.Send(four, -1), "destination -1 is not a rank");
  refused(world.AllGatherV(four, {}, four), "counts has 0 entries");
  refused(world.ReduceScatter(four, five), "output has 5 elements; 4 expected");
  refused(world.AllReduceAsync(four, five).Wait(), "5 elements");
  EXPECT_THAT((*runtime)->Allocate(-1), MatchesStatus(StatusCode::kInvalidArgument, "-1 bytes"));
  EXPECT_THAT((*runtime)->Allocate(int64_t{1} << 50), MatchesStatus(StatusCode::kResourceExhausted, "arena"));
}

TEST_P(Failure, ARefusedCallTakesItsTurn) {
  support::RunRanks(GetParam(), 3, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    Communicator& world = runtime->world();
    std::vector<float> in(1000, 1), out(1000), wrong(999);
    for (bool asynchronous : {false, true}) {
      TensorView to = rank == 1 ? TensorView(wrong) : TensorView(out);
      const absl::Status status = asynchronous ? world.AllReduceAsync(in, to).Wait() : world.AllReduce(in, to);
      EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, "output has 999 elements; 1000 expected"));
      if (rank != 1) {
        EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, "rank 0 called allreduce(f32, 1000 elements"));
        EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, "rank 1 made a call that was refused"));
      }
      // The next call meets the next call.
      std::vector<float> next(1000, 10.0f);
      ASSERT_THAT(world.AllReduce(next), IsOk());
      ASSERT_EQ(next[0], 30);
    }
    if (rank == 0) {
      EXPECT_THAT(world.Send(in, 1), MatchesStatus(StatusCode::kInvalidArgument, "negative count"));
      EXPECT_THAT(world.Send(in, 1), IsOk());
    } else if (rank == 1) {
      EXPECT_THAT(world.Receive(TensorView(out.data(), -1, DType::kF32), 0),
                  MatchesStatus(StatusCode::kInvalidArgument, "negative count"));
      EXPECT_THAT(world.Receive(out, 0), IsOk());
    }
    EXPECT_THAT(world.Send(in, 7), MatchesStatus(StatusCode::kInvalidArgument, "7 is not a rank"));
    EXPECT_THAT(world.SendAsync(in, 7).Wait(), MatchesStatus(StatusCode::kInvalidArgument, "7 is not a rank"));
  });
}

// --- Late and lost ranks ---

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
      EXPECT_GE(SecondsSince(start), 0.29);
      EXPECT_LT(SecondsSince(start), 1.3);
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

// --- Leaving ---

TEST_P(Failure, ShutdownEndsPendingCallsHereAndAtThePeers) {
  support::RunRanks(GetParam(), 2, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    Communicator& world = runtime->world();
    std::vector<float> data(100), other(100);
    if (rank == 1) {
      EXPECT_THAT(world.Receive(data, 0), MatchesStatus(StatusCode::kAborted, "rank 0 left the job"));
      return;
    }
    // Blocking, queued and waited-for calls that nobody answers.
    Work work = world.BarrierAsync();
    Work unattended = world.BroadcastAsync(other, 0);
    std::thread waiter([&] { EXPECT_THAT(work.Wait(), MatchesStatus(StatusCode::kFailedPrecondition, "shut down")); });
    std::thread caller([&] {
      EXPECT_THAT(world.Receive(data, 1), MatchesStatus(StatusCode::kFailedPrecondition, "shut down"));
    });
    std::this_thread::sleep_for(milliseconds(100));
    std::thread first([&] { runtime->Shutdown(); });
    std::thread second([&] { runtime->Shutdown(); });
    for (std::thread* t : {&waiter, &caller, &first, &second}) t->join();
    EXPECT_TRUE(unattended.Done());
    EXPECT_THAT(world.Barrier(), MatchesStatus(StatusCode::kFailedPrecondition, "shut down"));
    EXPECT_THAT(world.BarrierAsync().Wait(), MatchesStatus(StatusCode::kFailedPrecondition, "shut down"));
  });
}

TEST_P(Failure, PartsMayOutliveTheirRuntime) {
  support::RunRanks(GetParam(), 2, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    auto both = runtime->world().Split({{0, 1}});
    ASSERT_THAT(both, IsOk());
    auto buffer = runtime->Allocate(4000);
    ASSERT_THAT(buffer, IsOk());
    auto floats = buffer->As<float>();
    std::ranges::fill(floats, 1.0f);
    Work work = (*both)->AllReduceAsync(floats);
    ASSERT_THAT(work.Wait(), IsOk());
    Work pending = rank == 0 ? (*both)->ReceiveAsync(floats, 1) : Work();
    runtime.reset();
    EXPECT_EQ(floats[999], 2);
    EXPECT_THAT((*both)->Barrier(), MatchesStatus(StatusCode::kFailedPrecondition, ""));
    both->reset();
    if (rank == 0) {
      EXPECT_FALSE(pending.Wait().ok());
    }
  });
}

// A rank that is through leaves at once; the others must still get what it had sent.
TEST(Leaving, TheLastResultReachesSlowRanks) {
  for (int round = 0; round < 20; ++round) {
    support::RunThreads(4, [&](const Rank& rank) {
      auto runtime = JoinJob(rank);
      ASSERT_NE(runtime, nullptr);
      auto buffer = runtime->Allocate(400000);
      ASSERT_THAT(buffer, IsOk());
      auto floats = buffer->As<float>();
      std::ranges::fill(floats, static_cast<float>(rank + 1));
      ASSERT_THAT(runtime->world().AllReduce(floats), IsOk());
      std::vector<float> plain(70000, static_cast<float>(rank));
      ASSERT_THAT(runtime->world().Broadcast(plain, round % 4), IsOk());
      ASSERT_EQ(plain[69999], round % 4);
      ASSERT_EQ(floats[99999], 10);
    });
  }
}

TEST(SeveralRuntimes, LiveInOneProcess) {
  support::RunThreads(2, [](const Rank& rank) {
    auto first = JoinJob(rank);
    ASSERT_NE(first, nullptr);
    const auto second_directory = rank.directory / "second";
    std::filesystem::create_directories(second_directory);
    auto second = JoinJob(rank, JobOptions({1 - rank.rank, 2, second_directory, rank.name + "-second"}));
    ASSERT_NE(second, nullptr);
    EXPECT_EQ(second->world().rank(), 1 - rank.rank);
    for (int i = 0; i < 50; ++i) {
      std::vector<int> value = {1 + i};
      ASSERT_THAT((i % 2 == 0 ? first : second)->world().AllReduce(value), IsOk());
      ASSERT_EQ(value[0], 2 + 2 * i);
    }
    first.reset();
    ASSERT_THAT(second->world().Barrier(), IsOk());
  });
}

// --- The machine ---

TEST(Machine, AFullOrReadOnlyDevShmDoesNotMatter) {
  for (const char* options : {"size=1m", "size=1m,ro"}) {
    support::RunProcesses(2, [options](const Rank& rank) {
      if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("tmpfs", "/dev/shm", "tmpfs", options == std::string("size=1m") ? 0 : MS_RDONLY, "size=1m") != 0) {
        GTEST_SKIP() << "needs the right to mount (root)";
      }
      auto runtime = JoinJob(rank);
      ASSERT_NE(runtime, nullptr);
      auto buffer = runtime->Allocate(16 << 20);
      ASSERT_THAT(buffer, IsOk());
      auto floats = buffer->As<float>();
      std::ranges::fill(floats, 1.0f);
      ASSERT_THAT(runtime->world().AllReduce(floats), IsOk());
      std::vector<float> plain(4 << 20, 1.0f);
      ASSERT_THAT(runtime->world().AllReduce(plain), IsOk());
      EXPECT_EQ(floats.back() + plain.back(), 4);
    });
  }
}

TEST(Machine, AnIdleRuntimeUsesNoCpu) {
  support::RunProcesses(4, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    std::vector<float> data(1000, 1);
    ASSERT_THAT(runtime->world().AllReduceAsync(data).Wait(), IsOk());  // the progress thread is there too
    const auto cpu = [] {
      timespec time{};
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
    };
    ASSERT_THAT(runtime->world().Barrier(), IsOk());
    const double before = cpu();
    std::this_thread::sleep_for(seconds(10));
    EXPECT_LT(cpu() - before, 0.05);
    ASSERT_THAT(runtime->world().Barrier(), IsOk());
  });
}

}  // namespace
}  // namespace gyre
