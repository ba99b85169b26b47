#include "transport/shm/monitor.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "base/pidfd.h"
#include "gtest/gtest.h"
#include "support/signals.h"
#include "support/status_matchers.h"

namespace gyre::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kInterval(20), kTimeout(100);

// A child that sleeps until it is killed.
class Sleeper {
 public:
  Sleeper() : pid_(fork()) {
    while (pid_ == 0) pause();
  }
  ~Sleeper() {
    EXPECT_TRUE(support::SendSignal(pid_, SIGKILL)) << pid_;
    waitpid(pid_, nullptr, 0);
  }

  // Returns once it has stopped.
  void Stop() const {
    EXPECT_TRUE(support::SendSignal(pid_, SIGSTOP)) << pid_;
    waitpid(pid_, nullptr, WUNTRACED);
  }

  UniqueFd Open() const { return OpenPidfd(pid_); }

 private:
  const pid_t pid_;
};

// A monitor of one peer, whose end of the socket the test holds.
class MonitorTest : public testing::Test {
 protected:
  void Start(int process, Duration timeout = {}) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    own_end_.Reset(ends[0]);
    peer_end_.Reset(ends[1]);
    auto monitor = Monitor::Start({{own_end_.get(), process, peer_.get()}}, *own_, kInterval, timeout,
                                  {.on_gone =
                                       [this](int, PeerFate fate) {
                                         std::lock_guard lock(mutex_);
                                         EXPECT_FALSE(fate_.has_value()) << "told twice";
                                         fate_ = fate;
                                         told_.notify_one();
                                       },
                                   .on_beat = {}});
    ASSERT_THAT(monitor, support::IsOk());
    monitor_ = *std::move(monitor);
  }

  // Empty: none within `time`.
  std::optional<PeerFate> FateWithin(milliseconds time) {
    std::unique_lock lock(mutex_);
    told_.wait_for(lock, time, [this] { return fate_.has_value(); });
    return fate_;
  }

  std::unique_ptr<ControlBlock> own_ = std::make_unique<ControlBlock>(), peer_ = std::make_unique<ControlBlock>();
  UniqueFd own_end_, peer_end_;
  std::mutex mutex_;
  std::condition_variable told_;
  std::optional<PeerFate> fate_;  // guarded by mutex_
  std::unique_ptr<Monitor> monitor_;
};

TEST_F(MonitorTest, TheEndOfTheSocketIsTheEndOfThePeer) {
  Start(-1);
  EXPECT_EQ(FateWithin(milliseconds(100)), std::nullopt);
  peer_end_.Reset();
  EXPECT_EQ(FateWithin(milliseconds(5000)), PeerFate::kDied);
}

TEST_F(MonitorTest, APeerThatHasLeftIsSeenWhoeverHoldsItsSocket) {
  Start(-1);
  peer_->left.store(1);
  EXPECT_EQ(FateWithin(milliseconds(5000)), PeerFate::kLeft);
  peer_end_.Reset();  // not told again
  EXPECT_EQ(FateWithin(milliseconds(100)), PeerFate::kLeft);
}

TEST_F(MonitorTest, APeersProcessThatEndsIsSeenWhoeverHoldsItsSocket) {
  const pid_t child = fork();
  if (child == 0) {
    usleep(200'000);
    _exit(0);
  }
  const UniqueFd process = OpenPidfd(child);
  ASSERT_TRUE(process);
  Start(process.get());
  EXPECT_EQ(FateWithin(milliseconds(5000)), PeerFate::kDied);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  monitor_.reset();
}

TEST_F(MonitorTest, AStoppedPeerIsLostAtTheTimeout) {
  const Sleeper peer;
  const UniqueFd process = peer.Open();
  peer_->beat.store(1);
  peer.Stop();
  const auto start = steady_clock::now();
  Start(process.get(), kTimeout);
  EXPECT_EQ(FateWithin(milliseconds(5000)), PeerFate::kStopped);
  EXPECT_GE(steady_clock::now() - start, kTimeout);
  monitor_.reset();
}

TEST_F(MonitorTest, ASilentPeerThatIsNotStoppedHasTenTimesAsLong) {
  const Sleeper peer;
  const UniqueFd process = peer.Open();
  peer_->beat.store(1);
  const auto start = steady_clock::now();
  Start(process.get(), kTimeout);
  EXPECT_EQ(FateWithin(milliseconds(5000)), PeerFate::kSilent);
  EXPECT_GE(steady_clock::now() - start, kPatience * kTimeout);
  monitor_.reset();
}

TEST_F(MonitorTest, ASilentPeerWhoseProcessCannotBeSeenIsLostAtTheTimeout) {
  peer_->beat.store(1);
  const auto start = steady_clock::now();
  Start(-1, kTimeout);
  EXPECT_EQ(FateWithin(milliseconds(5000)), PeerFate::kSilent);
  const auto took = steady_clock::now() - start;
  EXPECT_GE(took, kTimeout);
  EXPECT_LT(took, kPatience * kTimeout);
}

TEST_F(MonitorTest, WithoutATimeoutSilenceIsNoLoss) {
  peer_->beat.store(1);
  Start(-1);
  EXPECT_EQ(FateWithin(milliseconds(1500)), std::nullopt);
}

}  // namespace
}  // namespace gyre::shm
