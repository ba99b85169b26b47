// The store's server and client together, over real sockets.
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bootstrap/store_client.h"
#include "bootstrap/store_protocol.h"
#include "bootstrap/store_server.h"
#include "net/acceptor.h"
#include "net/socket.h"
#include "support/deadline.h"
#include "support/ranks.h"
#include "support/status_matchers.h"
#include "support/usage.h"

namespace gyre {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;
using support::In;
using support::IsOk;
using support::MatchesStatus;

const std::string kSecret(32, 's');

class StoreTest : public testing::Test {
 protected:
  void Start(int size) {
    size_ = size;
    auto server = StoreServer::Start({"127.0.0.1", 0}, {kSecret, "job", 1, size}, In(1000));
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
  }

  absl::StatusOr<std::unique_ptr<StoreClient>> Connect(int rank, int ms = 10'000) {
    return StoreClient::Connect(server_->endpoint(), {"job", 1, rank, Role::kRank}, size_, kSecret, In(ms));
  }

  UniqueFd Stranger() {
    auto fd = ConnectTcp(server_->endpoint(), In(5000));
    EXPECT_THAT(fd, IsOk());
    return fd.ok() ? *std::move(fd) : UniqueFd();
  }

  int size_ = 0;
  std::unique_ptr<StoreServer> server_;
};

TEST_F(StoreTest, SetGetAdd) {
  Start(2);
  auto a = Connect(0), b = Connect(1);
  ASSERT_THAT(a, IsOk());
  ASSERT_THAT(b, IsOk());
  const std::string value(kMaxStoreValueBytes, 'v');
  EXPECT_THAT((*a)->Set("key", value, In(5000)), IsOk());
  EXPECT_EQ(*(*b)->Get("key", In(5000)), value);
  EXPECT_EQ(*(*a)->Add("n", 2, In(5000)), 2);
  EXPECT_EQ(*(*b)->Add("n", 3, In(5000)), 5);
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_THAT((*a)->Set("later", "now", In(5000)), IsOk());
  });
  EXPECT_EQ(*(*b)->Get("later", In(5000)), "now");
  later.join();
  EXPECT_THAT((*a)->Set("big", value + "!", In(5000)), MatchesStatus(StatusCode::kInvalidArgument, "1048576"));
}

TEST_F(StoreTest, CallsEndAtTheirDeadlineAndTheConnectionLivesOn) {
  Start(2);
  auto client = Connect(1);
  ASSERT_THAT(client, IsOk());
  const TimePoint begin = std::chrono::steady_clock::now();
  EXPECT_THAT((*client)->Get("never", In(200)), MatchesStatus(StatusCode::kDeadlineExceeded, "\"never\""));
  EXPECT_THAT((*client)->Gather("g", "x", In(200)),
              MatchesStatus(StatusCode::kDeadlineExceeded, "rank 0 of 2 did not come within 0.2 s"));
  EXPECT_LE(std::chrono::steady_clock::now() - begin, milliseconds(1400));
  EXPECT_FALSE((*client)->Get("never", In(-1)).ok());
  EXPECT_THAT((*client)->Set("key", "value", In(5000)), IsOk());
  EXPECT_EQ(*(*client)->Get("key", In(5000)), "value");
}

TEST_F(StoreTest, GathersManyTimes) {
  constexpr int kSize = 6;
  Start(kSize);
  support::RunThreads(kSize, [&](const support::Rank& rank) {
    auto client = Connect(rank);
    ASSERT_THAT(client, IsOk());
    for (int round = 0; round < 50; ++round) {
      const auto values = (*client)->Gather("g", absl::StrCat(rank.rank * 1000 + round), In(20'000));
      ASSERT_THAT(values, IsOk());
      ASSERT_EQ(values->size(), static_cast<size_t>(kSize));
      for (int r = 0; r < kSize; ++r) EXPECT_EQ((*values)[r], absl::StrCat(r * 1000 + round));
    }
  });
}

TEST_F(StoreTest, ALostRankIsToldAtOnce) {
  Start(3);
  auto a = Connect(0), b = Connect(1), c = Connect(2);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  std::thread leaver([&] {
    std::this_thread::sleep_for(milliseconds(50));
    c->reset();
  });
  const TimePoint begin = std::chrono::steady_clock::now();
  EXPECT_THAT((*a)->Gather("g", "", In(20'000)), MatchesStatus(StatusCode::kUnavailable, "rank 2 left"));
  EXPECT_THAT((*b)->Gather("g", "", In(20'000)), MatchesStatus(StatusCode::kUnavailable, "rank 2 left"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  leaver.join();
}

TEST_F(StoreTest, TheServersEndIsTold) {
  Start(2);
  auto client = Connect(1);
  ASSERT_THAT(client, IsOk());
  std::thread end([&] {
    std::this_thread::sleep_for(milliseconds(50));
    server_.reset();
  });
  EXPECT_THAT((*client)->Gather("g", "", In(20'000)), MatchesStatus(StatusCode::kCancelled, "closed"));
  end.join();
  EXPECT_THAT((*client)->Set("k", "v", In(5000)), MatchesStatus(StatusCode::kUnavailable, "the store at 127.0.0.1"));
}

// Rank 0 serves, has its last result, and goes: the others still get theirs, however slow they are.
TEST_F(StoreTest, AServerThatLeavesStillDeliversWhatItOwes) {
  for (int round = 0; round < 20; ++round) {
    Start(2);
    auto a = Connect(0), b = Connect(1);
    ASSERT_TRUE(a.ok() && b.ok());
    const std::string value(kMaxStoreValueBytes, 'v');
    std::thread slow([&] {
      const auto values = (*b)->Gather("g", value, In(20'000));
      ASSERT_THAT(values, IsOk());
      EXPECT_EQ((*values)[0], value);
    });
    EXPECT_THAT((*a)->Gather("g", value, In(20'000)), IsOk());
    a->reset();
    server_.reset();
    slow.join();
  }
}

TEST_F(StoreTest, ConnectRefusesAndExplains) {
  Start(2);
  const HandshakeIdentity self{"job", 1, 1, Role::kRank};
  EXPECT_THAT(StoreClient::Connect(server_->endpoint(), self, 2, "another secret!!", In(5000)),
              MatchesStatus(StatusCode::kUnauthenticated, "another secret"));
  HandshakeIdentity other = self;
  other.job_id = "other";
  EXPECT_THAT(StoreClient::Connect(server_->endpoint(), other, 2, kSecret, In(5000)),
              MatchesStatus(StatusCode::kUnauthenticated, "another job"));
  other = self;
  other.epoch = 0;
  EXPECT_THAT(
      StoreClient::Connect(server_->endpoint(), other, 2, kSecret, In(5000)),
      MatchesStatus(StatusCode::kAborted, "this job is in epoch 1 (the store); this process belongs to epoch 0"));
  other.epoch = 2;
  EXPECT_THAT(StoreClient::Connect(server_->endpoint(), other, 2, kSecret, In(5000)),
              MatchesStatus(StatusCode::kCancelled, "this job is in epoch 2; the store belongs to epoch 1"));
  EXPECT_THAT(StoreClient::Connect(server_->endpoint(), self, 3, kSecret, In(5000)),
              MatchesStatus(StatusCode::kFailedPrecondition, "a job of 2 ranks"));
  EXPECT_THAT(StoreServer::Start(server_->endpoint(), {kSecret, "job", 1, 2}, In(1000)),
              MatchesStatus(StatusCode::kAlreadyExists, "taken"));
  const Endpoint gone = server_->endpoint();
  server_.reset();
  const TimePoint begin = std::chrono::steady_clock::now();
  EXPECT_THAT(StoreClient::Connect(gone, self, 2, kSecret, In(150)),
              MatchesStatus(StatusCode::kDeadlineExceeded, absl::StrCat("the store at ", ToString(gone))));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1200));
}

// Strangers whose bytes are no hello explain nobody's absence, and nothing of them is repeated.
TEST_F(StoreTest, WhoWaitsInVainHearsWhoWasRefused) {
  Start(3);
  auto client = Connect(0);
  ASSERT_THAT(client, IsOk());
  const auto refused = [&](HandshakeIdentity self, const std::string& secret) {
    EXPECT_FALSE(StoreClient::Connect(server_->endpoint(), self, size_, secret, In(5000)).ok());
  };
  const auto babble = [&] {
    const UniqueFd stranger = Stranger();
    ASSERT_THAT(SendAll(stranger.get(), AsBytes(std::string(kHelloBytes, 'x')), In(1000)), IsOk());
    char byte = 0;
    EXPECT_LE(recv(stranger.get(), &byte, 1, 0), 0);  // it was sent away
  };
  const auto waits_in_vain = [&] { return std::string((*client)->Gather("g", "", In(500)).status().message()); };
  babble();
  EXPECT_THAT(waits_in_vain(), testing::EndsWith("ranks 1, 2 of 3 did not come within 0.5 s"));
  refused({"job", 1, 1, Role::kRank}, "another secret!!");
  EXPECT_THAT(waits_in_vain(), testing::HasSubstr("0.5 s; 1 attempt to join was refused: 127.0.0.1: rank 1 holds "
                                                  "another secret than the store; try: "));
  refused({"job", 1, 2, Role::kRank}, "another secret!!");
  babble();
  EXPECT_THAT(waits_in_vain(), testing::HasSubstr("; 2 attempts to join were refused, the last one: 127.0.0.1: rank 2 "
                                                  "holds another secret than the store; try: "));
  refused({"job", 0, 2, Role::kRank}, kSecret);
  EXPECT_THAT(waits_in_vain(), testing::EndsWith("; 3 attempts to join were refused, the last one: 127.0.0.1: this job "
                                                 "is in epoch 1; rank 2 belongs to epoch 0: it was left over from "
                                                 "before a restart"));
  refused({"other", 1, 2, Role::kRank}, kSecret);
  EXPECT_THAT(waits_in_vain(), testing::HasSubstr("; 4 attempts to join were refused, the last one: 127.0.0.1: rank 2 "
                                                  "belongs to another job than \"job\""));
  // Ranks that once were there are not missing because somebody was refused.
  auto second = Connect(1), third = Connect(2);
  ASSERT_TRUE(second.ok() && third.ok());
  EXPECT_THAT(waits_in_vain(), testing::EndsWith("ranks 1, 2 of 3 did not come within 0.5 s"));
}

TEST_F(StoreTest, ASilentServerEndsAtTheDeadline) {
  const auto listener = ListenTcp({"127.0.0.1", 0}, 8, In(1000));
  ASSERT_THAT(listener, IsOk());
  EXPECT_THAT(StoreClient::Connect(*LocalEndpoint(listener->get()), {"job", 1, 1, Role::kRank}, 2, kSecret, In(100)),
              MatchesStatus(StatusCode::kDeadlineExceeded, "handshake"));
}

TEST_F(StoreTest, ClientsSurviveAnyAnswer) {
  // A server that holds the secret but answers garbage, or lets go in the middle.
  std::mt19937_64 random(3);
  for (int round = 0; round < 30; ++round) {
    auto listener = ListenTcp({"127.0.0.1", 0}, 8, In(1000));
    ASSERT_THAT(listener, IsOk());
    const Endpoint endpoint = *LocalEndpoint(listener->get());
    const auto acceptor = Acceptor::Create(*std::move(listener), {"job", 1, -1, Role::kStore}, kSecret);
    ASSERT_THAT(acceptor, IsOk());
    std::string answer = EncodeFrame({static_cast<uint16_t>(StoreMessage::kReply), 0, 1, 1}, "x");
    if (round % 3 == 0) answer.resize(random() % answer.size());
    if (round % 3 == 1) answer[random() % answer.size()] ^= 1;
    if (round % 3 == 2) answer = EncodeFrame({6, static_cast<uint16_t>(200 + round), 1, 1}, "no such code");
    std::thread server([&] {
      const auto peer = (*acceptor)->Next(In(5000));
      ASSERT_THAT(peer, IsOk());
      SendAll(peer->fd.get(), AsBytes(answer), In(5000)).IgnoreError();
    });
    EXPECT_FALSE(StoreClient::Connect(endpoint, {"job", 1, 1, Role::kRank}, 2, kSecret, In(300)).ok());
    server.join();
  }
}

TEST_F(StoreTest, AnAuthenticatedPeerThatBabblesIsCutOffAndHarmsNobody) {
  Start(2);
  auto honest = Connect(0);
  ASSERT_THAT(honest, IsOk());
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    const UniqueFd fd = Stranger();
    ASSERT_THAT(AuthenticateTo(fd.get(), {"job", 1, 1, Role::kRank}, kSecret, In(5000)), IsOk());
    std::string bytes(1 + random() % 5000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    SendAll(fd.get(), AsBytes(bytes), In(1000)).IgnoreError();
    const std::string key = absl::StrCat("k", round);
    EXPECT_THAT((*honest)->Set(key, key, In(5000)), IsOk());
    EXPECT_EQ(*(*honest)->Get(key, In(5000)), key);
  }
}

TEST_F(StoreTest, HonestRanksGatherUnderGarbage) {
  constexpr int kSize = 3;
  Start(kSize);
  std::atomic<bool> stop = false;
  std::vector<std::thread> strangers;
  for (int i = 0; i < 3; ++i) {
    strangers.emplace_back([&, i] {
      std::mt19937_64 random(i);
      std::vector<UniqueFd> silent;
      while (!stop) {
        auto fd = ConnectTcp(server_->endpoint(), In(1000));
        if (!fd.ok()) continue;
        std::string bytes(random() % 300, '\0');
        for (char& byte : bytes) byte = static_cast<char>(random());
        SendAll(fd->get(), AsBytes(bytes), In(100)).IgnoreError();
        if (random() % 4 == 0) silent.push_back(*std::move(fd));
        if (silent.size() > 100) silent.clear();
      }
    });
  }
  support::RunThreads(kSize, [&](const support::Rank& rank) {
    for (int round = 0; round < 5; ++round) {
      auto client = Connect(rank, 30'000);
      ASSERT_THAT(client, IsOk());
      for (int i = 0; i < 10; ++i) {
        const auto values = (*client)->Gather("g", absl::StrCat(rank.rank), In(30'000));
        ASSERT_THAT(values, IsOk());
        EXPECT_EQ(*values, (std::vector<std::string>{"0", "1", "2"}));
      }
    }
  });
  stop = true;
  for (std::thread& thread : strangers) thread.join();
}

// What 1000 strangers who send as much as they can and never prove themselves cost.
TEST_F(StoreTest, MemoryBeforeAuthenticationIsBounded) {
  Start(2);
  auto honest = Connect(0);
  ASSERT_THAT(honest, IsOk());
  const int64_t before = support::MemoryInUse();
  std::vector<UniqueFd> strangers;
  const std::string hello(kHelloBytes - 1, 'x');  // all but the last byte: held, not judged
  for (int i = 0; i < 1000; ++i) {
    strangers.push_back(Stranger());
    SendAll(strangers.back().get(), AsBytes(hello), In(1000)).IgnoreError();
  }
  EXPECT_THAT((*honest)->Set("key", "value", In(5000)), IsOk());
  const auto held = [&] {
    return std::ranges::count_if(strangers, [](const UniqueFd& stranger) {
      char byte;
      return recv(stranger.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
    });
  };
  // Some may still wait to be accepted.
  for (const TimePoint end = In(5000); held() > 256 && std::chrono::steady_clock::now() < end;) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_LE(held(), 256);
  EXPECT_GE(held(), 200);
  EXPECT_LT(support::MemoryInUse() - before, 16 << 20);
}

TEST_F(StoreTest, AnIdleStoreUsesNoProcessor) {
  Start(2);
  auto a = Connect(0), b = Connect(1);
  ASSERT_TRUE(a.ok() && b.ok());
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  std::this_thread::sleep_for(milliseconds(1000));
  getrusage(RUSAGE_SELF, &after);
  const auto microseconds = [](const rusage& usage) {
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  EXPECT_LT(microseconds(after) - microseconds(before), 10'000);
}

}  // namespace
}  // namespace gyre
