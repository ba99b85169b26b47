#include "net/acceptor.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "net/job_identity.h"
#include "net/socket.h"
#include "support/deadline.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::In;
using support::IsOk;
using support::MatchesStatus;

class AcceptorTest : public testing::Test {
 protected:
  void Start(AcceptorOptions options = {}) {
    auto acceptor = Acceptor::Create(*ListenUnix(name_, 64), TestRank(0), kTestSecret, options);
    ASSERT_THAT(acceptor, IsOk());
    acceptor_ = *std::move(acceptor);
  }

  UniqueFd Stranger() { return *ConnectUnix(name_, In(1000)); }

  absl::StatusOr<Connected> Connect(int rank, const std::string& secret = kTestSecret, int ms = 10'000) {
    return ConnectAuthenticated(
        "rank 0", [this](TimePoint until) { return ConnectUnix(name_, until); }, TestRank(rank), secret, In(ms));
  }

  const std::string name_ = absl::StrCat("@", support::UniqueName("acceptor-test"));
  std::unique_ptr<Acceptor> acceptor_;
};

TEST_F(AcceptorTest, LetsHonestPeersThrough) {
  Start();
  constexpr int kPeers = 8;
  std::vector<std::thread> peers;
  for (int rank = 1; rank <= kPeers; ++rank) {
    peers.emplace_back([this, rank] {
      const auto connected = Connect(rank);
      ASSERT_THAT(connected, IsOk());
      EXPECT_EQ(connected->peer, TestRank(0));
      const std::string text = absl::StrCat("from ", rank);
      EXPECT_THAT(SendAll(connected->fd.get(), AsBytes(text), In(1000)), IsOk());
    });
  }
  std::set<int> ranks;
  for (int i = 0; i < kPeers; ++i) {
    auto accepted = acceptor_->Next(In(10'000));
    ASSERT_THAT(accepted, IsOk());
    EXPECT_EQ(fcntl(accepted->fd.get(), F_GETFL) & O_NONBLOCK, 0);
    std::string text(6, '\0');
    EXPECT_THAT(ReceiveExactly(accepted->fd.get(), AsMutableBytes(text), In(5000)), IsOk());
    EXPECT_EQ(text, absl::StrCat("from ", accepted->peer.rank));
    ranks.insert(accepted->peer.rank);
  }
  for (std::thread& peer : peers) peer.join();
  EXPECT_EQ(ranks.size(), static_cast<size_t>(kPeers));
}

TEST_F(AcceptorTest, SilentAndBabblingStrangersHoldUpNobody) {
  Start();
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 30; ++i) {
    strangers.push_back(Stranger());
    if (i % 3 == 0) continue;  // silent
    const std::string text(i % 3 == 1 ? 10 : 1000, 'g');
    ASSERT_THAT(SendAll(strangers.back().get(), AsBytes(text), In(1000)), IsOk());
  }
  std::thread peer([this] { EXPECT_THAT(Connect(5), IsOk()); });
  const TimePoint begin = std::chrono::steady_clock::now();
  const auto accepted = acceptor_->Next(In(10'000));
  peer.join();
  ASSERT_THAT(accepted, IsOk());
  EXPECT_EQ(accepted->peer.rank, 5);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));  // not the handshake's time-out
}

TEST_F(AcceptorTest, TellsWhyNobodyCame) {
  Start();
  std::thread peer([this] {
    EXPECT_THAT(Connect(5, "wrong secret....", 5000), MatchesStatus(StatusCode::kUnauthenticated, "rank 0"));
  });
  EXPECT_THAT(acceptor_->Next(In(500)), MatchesStatus(StatusCode::kDeadlineExceeded, "rank 5 holds another secret"));
  peer.join();
  EXPECT_EQ(acceptor_->counts().refused, 1);
  EXPECT_EQ(acceptor_->counts().refused_peers, 1);
  const UniqueFd stranger = Stranger();
  ASSERT_THAT(SendAll(stranger.get(), AsBytes(std::string(kHelloBytes, 'g')), In(1000)), IsOk());
  EXPECT_FALSE(acceptor_->Next(In(100)).ok());
  EXPECT_EQ(acceptor_->counts().refused, 2);
  EXPECT_EQ(acceptor_->counts().refused_peers, 1);  // nothing that a rank would say
  EXPECT_THAT(acceptor_->counts().last_refused_peer,
              MatchesStatus(StatusCode::kUnauthenticated, "rank 5 holds another secret"));
}

TEST_F(AcceptorTest, BoundsThePendingAndDropsTheOldest) {
  Start({.max_pending = 4});
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 20; ++i) strangers.push_back(Stranger());
  EXPECT_THAT(acceptor_->Next(In(100)), MatchesStatus(StatusCode::kDeadlineExceeded, "no peer came"));
  EXPECT_EQ(acceptor_->counts().accepted, 20);
  EXPECT_EQ(acceptor_->counts().dropped, 16);
  char byte;
  EXPECT_EQ(recv(strangers.front().get(), &byte, 1, MSG_DONTWAIT), 0);  // closed
  EXPECT_EQ(recv(strangers.back().get(), &byte, 1, MSG_DONTWAIT), -1);  // still pending
}

TEST_F(AcceptorTest, SendsTheSlowAway) {
  Start({.handshake_timeout = std::chrono::milliseconds(50)});
  const UniqueFd stranger = Stranger();
  EXPECT_FALSE(acceptor_->Next(In(300)).ok());
  EXPECT_EQ(acceptor_->counts().timed_out, 1);
  char byte;
  EXPECT_EQ(recv(stranger.get(), &byte, 1, MSG_DONTWAIT), 0);
}

TEST_F(AcceptorTest, HonestPeersGetThroughAFlood) {
  Start({.max_pending = 16});
  std::atomic<bool> stop = false;
  std::vector<std::thread> flood;
  for (int i = 0; i < 2; ++i) {
    flood.emplace_back([&] {
      while (!stop) {
        auto stranger = ConnectUnix(name_, In(100));
        if (stranger.ok()) SendAll(stranger->get(), AsBytes("garbage garbage"), In(100)).IgnoreError();
      }
    });
  }
  std::thread peers([this] {
    for (int i = 0; i < 20; ++i) EXPECT_THAT(Connect(i), IsOk());
  });
  for (int i = 0; i < 20; ++i) {
    const auto accepted = acceptor_->Next(In(20'000));
    EXPECT_THAT(accepted, IsOk());
  }
  peers.join();
  stop = true;
  for (std::thread& thread : flood) {
    // The flood may sit in a connect that nobody accepts any more.
    while (acceptor_->Next(In(10)).ok()) {
    }
    thread.join();
  }
}

TEST_F(AcceptorTest, ConnectRetriesUntilSomebodyListens) {
  std::thread peer([this] { EXPECT_THAT(Connect(5), IsOk()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Start();
  EXPECT_THAT(acceptor_->Next(In(5000)), IsOk());
  peer.join();
}

TEST_F(AcceptorTest, ConnectSaysAtTheDeadlineWhatWasWrong) {
  const TimePoint begin = std::chrono::steady_clock::now();
  EXPECT_THAT(Connect(5, kTestSecret, 100),
              MatchesStatus(StatusCode::kDeadlineExceeded, "rank 0 was not reached in time"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

}  // namespace
}  // namespace gyre
