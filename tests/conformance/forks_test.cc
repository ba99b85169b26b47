// Ranks that have forked: a child without exec keeps their sockets open, and must not keep them alive; nor may its end
// be taken for theirs.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/failure_fixture.h"
#include "support/forked.h"

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

// --- What a child does with its copy of the runtime ---

constexpr char kForked[] = "was forked from process";

// Everything that a rank can have of a runtime, with a call under way.
struct Everything {
  static Everything Make(std::unique_ptr<Runtime> runtime) {
    Everything made;
    Communicator& world = runtime->world();
    made.part = *world.Split(std::vector{0, 1, 2});
    made.buffer = *runtime->Allocate(1000);
    made.named = *NamedOperations::Create(world);
    made.reducer = *GradientReducer::Create(world);
    EXPECT_THAT(made.reducer->Register("gradient", std::vector<int64_t>{7}), IsOk());
    EXPECT_THAT(made.reducer->Start(), IsOk());
    made.runtime = std::move(runtime);
    return made;
  }

  // As a program that knows nothing of the fork goes on.
  void ExpectRefusals() {
    const auto refused = MatchesStatus(StatusCode::kFailedPrecondition, kForked);
    std::vector<float> data(7);
    EXPECT_THAT(runtime->world().AllReduce(data), refused);
    EXPECT_THAT(part->Barrier(), refused);
    EXPECT_THAT(part->Send(data, 1), refused);
    EXPECT_THAT(runtime->world().BarrierAsync().Wait(), refused);
    EXPECT_THAT(runtime->world().Split(std::vector{0, 1, 2}), refused);
    EXPECT_TRUE(work.Done());
    EXPECT_THAT(work.Wait(), refused);
    EXPECT_THAT(runtime->Allocate(100), refused);
    EXPECT_THAT(runtime->Report({.step = 1}), refused);
    EXPECT_THAT(named->AllReduce("name", data).Wait(), refused);
    EXPECT_THAT(named->Join().Wait(), refused);
    EXPECT_THAT(NamedOperations::Create(*part), refused);
    EXPECT_THAT(reducer->Ready(0), refused);
    EXPECT_THAT(reducer->Wait(), refused);
    EXPECT_THAT(GradientReducer::Create(*part), refused);
    runtime->Shutdown();
  }

  // All that it has goes on as if nothing had been.
  void ExpectAllWell() {
    EXPECT_THAT(work.Wait(), IsOk());
    std::vector<float> data = {1, 2, 3};
    EXPECT_THAT(part->AllReduce(data), IsOk());
    EXPECT_EQ(data, (std::vector<float>{3, 6, 9}));
    EXPECT_THAT(named->AllReduce("name", data).Wait(), IsOk());
    EXPECT_THAT(reducer->Ready(0), IsOk());
    EXPECT_THAT(reducer->Wait(), IsOk());
    EXPECT_THAT(runtime->world().Barrier(), IsOk());
  }

  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Communicator> part;
  Buffer buffer;
  std::unique_ptr<NamedOperations> named;
  std::unique_ptr<GradientReducer> reducer;
  std::vector<float> sum = std::vector<float>(100);
  Work work;
};

// Three ranks, on these hosts. Rank 0 has begun a call when it runs `child` in a forked child; the others make theirs
// once that has ended. Then all ranks go on.
void ForkOnRankZero(const HostSizes& hosts, const std::function<void(Everything&)>& child,
                    const std::function<void(int status)>& ended) {
  support::ProcessGroup group(3, [&](const Rank& rank) {
    setenv("GYRE_TIMELINE", (rank.directory / "timeline").c_str(), 1);  // one more thread
    auto runtime = JoinJob(rank, JobOptions(rank, hosts));
    ASSERT_NE(runtime, nullptr);
    Everything all = Everything::Make(std::move(runtime));
    const std::filesystem::path over = rank.directory / "over";
    if (rank == 0) {
      all.work = all.runtime->world().AllReduceAsync(all.sum);
      ended(support::RunForked([&] { child(all); }));
      std::ofstream(over) << "now";
    } else {
      while (!std::filesystem::exists(over)) std::this_thread::sleep_for(milliseconds(5));
      all.work = all.runtime->world().AllReduceAsync(all.sum);
    }
    all.ExpectAllWell();
  });
  group.ExpectAllSucceed();
}

class ForkedChild : public testing::TestWithParam<HostSizes> {};

TEST_P(ForkedChild, CallsAreRefusedAndItsEndIsNotTheParents) {
  ForkOnRankZero(
      GetParam(),
      [](Everything& all) {
        all.ExpectRefusals();
        const Everything destroyed = std::move(all);
      },
      [](int status) { EXPECT_EQ(status, 0); });
}

// In whatever order they go.
TEST_P(ForkedChild, ItsRuntimeMayGoFirst) {
  ForkOnRankZero(
      GetParam(),
      [](Everything& all) {
        all.runtime.reset();
        const Everything destroyed = std::move(all);
      },
      [](int status) { EXPECT_EQ(status, 0); });
}

// As after a failed exec. A leak checker may have its word about the code.
TEST_P(ForkedChild, MayExit) {
  ForkOnRankZero(
      GetParam(),
      [](Everything& all) {
        static std::optional<Everything> of_the_program;
        of_the_program = std::move(all);
        execl("/nonexistent/helper", "helper", nullptr);
        std::exit(0);
      },
      [](int status) { EXPECT_TRUE(WIFEXITED(status)) << status; });
}

INSTANTIATE_TEST_SUITE_P(Hosts, ForkedChild, testing::Values(HostSizes{3}, HostSizes{1, 2}),
                         [](const auto& hosts) { return hosts.param.size() == 1 ? "One" : "Two"; });

}  // namespace
}  // namespace gyre
