// Ranks that leave in order, several runtimes in one process, and what the machine may lack.
#include <sched.h>
#include <sys/mount.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "conformance/failure_fixture.h"
#include "support/usage.h"

namespace gyre {
namespace {

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
    std::thread caller(
        [&] { EXPECT_THAT(world.Receive(data, 1), MatchesStatus(StatusCode::kFailedPrecondition, "shut down")); });
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
    ASSERT_THAT(runtime->world().Barrier(), IsOk());
    const auto before = support::ProcessorTime();
    std::this_thread::sleep_for(seconds(10));
    EXPECT_LT(support::ProcessorTime() - before, milliseconds(50));
    ASSERT_THAT(runtime->world().Barrier(), IsOk());
  });
}

}  // namespace
}  // namespace gyre
