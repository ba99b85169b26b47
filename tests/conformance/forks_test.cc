// Ranks that have forked: a child without exec keeps their sockets open, and must not keep them alive.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "conformance/failure_fixture.h"

namespace gyre {
namespace {

// A child that holds all but the output for longer than the test takes.
void Fork() {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child != 0) return;
  for (int fd : {0, 1, 2}) close(fd);
  sleep(6);
  _exit(0);
}

// Waits for a rank that goes `milliseconds(300)` after the barrier.
void ExpectToSeeItGo(Communicator& world, const char* how) {
  const auto start = steady_clock::now();
  std::vector<float> data(10);
  EXPECT_THAT(world.Receive(data, 1), MatchesStatus(StatusCode::kAborted, how));
  EXPECT_LT(steady_clock::now() - start, milliseconds(900));
}

TEST(Fork, ARankThatLeavesInOrderIsSeenToLeave) {
  support::ProcessGroup group(2, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    if (rank == 1) Fork();
    ASSERT_THAT(runtime->world().Barrier(), IsOk());
    if (rank == 0) return ExpectToSeeItGo(runtime->world(), "rank 1 left the job");
    std::this_thread::sleep_for(milliseconds(300));
    runtime->Shutdown();
  });
  group.ExpectAllSucceed();
}

TEST(Fork, ARankThatIsKilledIsSeenToDie) {
  support::ProcessGroup group(2, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    if (rank == 1) Fork();
    ASSERT_THAT(runtime->world().Barrier(), IsOk());
    if (rank == 0) return ExpectToSeeItGo(runtime->world(), "rank 1 was lost: its process ended");
    std::this_thread::sleep_for(milliseconds(300));
    raise(SIGKILL);
  });
  group.ExpectSuccess(0);
  group.ExpectExitCode(1, 128 + SIGKILL);
}

}  // namespace
}  // namespace gyre
