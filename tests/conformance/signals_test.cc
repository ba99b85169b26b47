// Signals belong to the program: none is taken by a thread of the runtime's.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <string>
#include <vector>

#include "base/fd.h"
#include "conformance/failure_fixture.h"

namespace gyre {
namespace {

// What a thread of this process blocks, signal N as bit N - 1.
uint64_t BlockedBy(const std::filesystem::path& task) {
  std::ifstream status(task / "status");
  uint64_t blocked = 0;
  for (std::string field; status >> field;) {
    if (field == "SigBlk:") status >> std::hex >> blocked;
  }
  return blocked;
}

// How many threads this process has beside the calling one, all of which must block these signals.
int OtherThreadsThatBlock(const std::vector<int>& signals) {
  int others = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    ++others;
    const uint64_t blocked = BlockedBy(task.path());
    for (const int signal : signals) EXPECT_NE(blocked >> (signal - 1) & 1, 0u) << "signal " << signal;
  }
  return others;
}

TEST(Signals, AProgramReadsThemFromASignalfdWhateverThreadsTheRuntimeHas) {
  support::ProcessGroup group(2, [](const Rank& rank) {
    setenv("GYRE_TIMELINE", (rank.directory / "timeline").c_str(), 1);
    auto runtime = JoinJob(rank, JobOptions(rank, {1, 1}));
    ASSERT_NE(runtime, nullptr);
    std::vector<float> data(100);
    ASSERT_THAT(runtime->world().AllReduceAsync(data).Wait(), IsOk());
    // The hub's, the progress thread, the timeline's; on rank 0 the store's.
    EXPECT_GE(OtherThreadsThatBlock({SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCHLD, SIGPROF}), rank == 0 ? 4 : 3);

    sigset_t terminations;
    sigemptyset(&terminations);
    sigaddset(&terminations, SIGTERM);
    ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &terminations, nullptr), 0);
    const UniqueFd signals(signalfd(-1, &terminations, SFD_CLOEXEC));
    ASSERT_EQ(kill(getpid(), SIGTERM), 0);  // deadly, if any thread took it
    pollfd arrives{.fd = signals.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&arrives, 1, 20'000), 1);
    signalfd_siginfo info{};
    EXPECT_EQ(read(signals.get(), &info, sizeof info), static_cast<ssize_t>(sizeof info));
    EXPECT_THAT(runtime->world().Barrier(), IsOk());
  });
  group.ExpectAllSucceed();
}

}  // namespace
}  // namespace gyre
