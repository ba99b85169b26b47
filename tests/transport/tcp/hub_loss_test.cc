// Peers that die, freeze and come back; and strangers.
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "net/acceptor.h"
#include "net/socket.h"
#include "support/ranks.h"
#include "support/usage.h"
#include "transport/tcp/control_frames.h"
#include "transport/tcp/hub.h"
#include "transport/tcp/hub_fixture.h"

namespace gyre::tcp {
namespace {

// --- Ranks in processes: they tell each other their ports through the group's folder ---

void TellPort(const std::filesystem::path& directory, int rank, TestHub& hub) {
  const auto path = directory / absl::StrCat(rank);
  std::ofstream(path.string() + ".new") << hub->endpoint().port;
  std::filesystem::rename(path.string() + ".new", path);
}

PeerAddress AskPort(const std::filesystem::path& directory, int rank) {
  uint16_t port = 0;
  for (const TimePoint deadline = In(kPatience); std::chrono::steady_clock::now() < deadline;) {
    if (std::ifstream file(directory / absl::StrCat(rank)); file >> port) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_NE(port, 0) << "rank " << rank << " did not tell its port";
  return AddressOf(rank, Loopback(port));
}

void TellReady(const std::filesystem::path& directory, int rank) {
  std::ofstream(directory / absl::StrCat("ready-", rank));
}

void WaitUntilReady(const std::filesystem::path& directory, int rank) {
  for (const TimePoint deadline = In(kPatience); std::chrono::steady_clock::now() < deadline;) {
    if (std::filesystem::exists(directory / absl::StrCat("ready-", rank))) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  FAIL() << "rank " << rank << " did not connect";
}

// Starts the hub among `size` ranks and connects with all.
void Join(const std::filesystem::path& directory, int rank, int size, TestHub& hub) {
  TellPort(directory, rank, hub);
  Peers peers;
  std::vector<int> ranks;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    peers[peer] = AskPort(directory, peer);
    ranks.push_back(peer);
  }
  ASSERT_THAT(hub->Start(peers), IsOk());
  ASSERT_THAT(hub->Connect(ranks, In(kPatience)), IsOk());
  TellReady(directory, rank);
}

HubOptions Beats(int timeout_ms) {
  return {.heartbeat_interval = std::chrono::milliseconds(50),
          .heartbeat_timeout = std::chrono::milliseconds(timeout_ms)};
}

constexpr int kTimeout = 1500;  // ms of silence: a busy machine's live ranks are never as slow

TEST(Loss, ADeadPeerIsNamed) {
  support::ProcessGroup group(1, [](const support::Rank& child) {
    TestHub hub(1);
    Join(child.directory, 1, 2, hub);
    const auto streams = hub->Open(4, {0});
    Send(*streams, 0, "before", In(kPatience)).IgnoreError();
    hub.WaitForLoss(0);  // until killed
  });
  TestHub hub(0);
  Join(group.directory(), 0, 2, hub);
  WaitUntilReady(group.directory(), 1);
  const auto streams = hub->Open(4, {1});
  EXPECT_EQ(Receive(*streams, 1, 6, In(kPatience)).value_or(""), "before");
  group[0].Signal(SIGKILL);
  // Though the stream may end first, the reason given is the loss.
  EXPECT_THAT(Receive(*streams, 1, 1, In(kPatience)),
              MatchesStatus(StatusCode::kUnavailable, "rank 1 on host h1 was lost: its connection ended"));
  const auto text = hub.WaitForLoss(1);
  EXPECT_THAT(text, Optional(HasSubstr("rank 1 on host h1 was lost: its connection ended")));
  EXPECT_THAT(Receive(*streams, 1, 1, In(kPatience)), MatchesStatus(StatusCode::kUnavailable, *text));
  EXPECT_THAT(Send(*streams, 1, "x", In(kPatience)), MatchesStatus(StatusCode::kUnavailable, *text));
  EXPECT_THAT(Send(*hub->Open(5, {1}), 1, "x", In(kPatience)), MatchesStatus(StatusCode::kUnavailable, *text));
  EXPECT_THAT(hub->Connect(std::vector{1}, In(kPatience)), MatchesStatus(StatusCode::kUnavailable, *text));
  group.ExpectExitCode(0, 128 + SIGKILL);
}

TEST(Loss, AFrozenPeerIsNamedAndWakesAWaiterAndLearnsOfItLater) {
  support::ProcessGroup group(1, [](const support::Rank& child) {
    TestHub hub(1);
    Join(child.directory, 1, 2, hub);
    EXPECT_THAT(hub.WaitForLoss(0), Optional(HasSubstr("rank 0 on host h0 has given rank 1 up")));
    EXPECT_THAT(Send(*hub->Open(4, {0}), 0, "x", In(kPatience)), MatchesStatus(StatusCode::kUnavailable, "was lost"));
  });
  TestHub hub(0, TestSetup::With(Beats(kTimeout)));
  Join(group.directory(), 0, 2, hub);
  WaitUntilReady(group.directory(), 1);
  const auto streams = hub->Open(4, {1});
  ASSERT_THAT(Send(*streams, 1, "x", In(kPatience)), IsOk());
  group[0].Signal(SIGSTOP);
  const TimePoint begin = std::chrono::steady_clock::now();
  // Nothing will ever come: the loss wakes the wait and is what it ends with.
  EXPECT_THAT(Receive(*streams, 1, 1, In(kPatience)),
              MatchesStatus(StatusCode::kUnavailable, "rank 1 on host h1 was lost: no heartbeat for 1.5 s"));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(kTimeout - 200));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(10 * kTimeout));
  EXPECT_THAT(hub.WaitForLoss(1), Optional(HasSubstr("no heartbeat for 1.5 s")));
  group[0].Signal(SIGCONT);
  group.ExpectSuccess(0);
}

TEST(Loss, WhoWasFrozenItselfBlamesNobody) {
  support::ProcessGroup group(1, [](const support::Rank& child) {
    TestHub hub(1, TestSetup::With(Beats(kTimeout)));
    Join(child.directory, 1, 2, hub);
    EXPECT_EQ(Receive(*hub->Open(4, {0}), 0, 4, In(kPatience)).value_or(""), "over");
    EXPECT_EQ(hub.losses(), 0);
    EXPECT_TRUE(hub.WaitUntilLeft(0));
  });
  TestHub hub(0, TestSetup::With(Beats(0)));  // never judges
  Join(group.directory(), 0, 2, hub);
  WaitUntilReady(group.directory(), 1);
  group[0].Signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(2 * kTimeout));
  group[0].Signal(SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_THAT(Send(*hub->Open(4, {1}), 1, "over", In(kPatience)), IsOk());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  hub->Close();
  group.ExpectSuccess(0);
  EXPECT_EQ(hub.losses(), 0);
}

TEST(Loss, IsToldToAll) {
  support::ProcessGroup group(1, [](const support::Rank& child) {
    TestHub hub(2);
    Join(child.directory, 2, 3, hub);
    EXPECT_TRUE(hub.WaitForLoss(0).has_value());
    EXPECT_TRUE(hub.WaitForLoss(1).has_value());
  });
  TestHub patient(0, TestSetup::With(Beats(0)));
  TestHub watchful(1, TestSetup::With(Beats(kTimeout)));
  std::thread other([&] { Join(group.directory(), 1, 3, watchful); });
  Join(group.directory(), 0, 3, patient);
  other.join();
  WaitUntilReady(group.directory(), 2);
  group[0].Signal(SIGSTOP);
  EXPECT_THAT(watchful.WaitForLoss(2), Optional(HasSubstr("rank 2 on host h2 was lost: no heartbeat")));
  EXPECT_THAT(patient.WaitForLoss(2), Optional(HasSubstr("rank 2 on host h2 was lost: no heartbeat")));
  EXPECT_EQ(patient.losses(), 1);
  EXPECT_EQ(watchful.losses(), 1);
  group[0].Signal(SIGCONT);
  group.ExpectSuccess(0);
}

// Rank 5 is on the host of rank 0, which hears of its end by other ways.
TEST(Loss, OfANeighbourIsToldToPeersNowAndLater) {
  TestHub first(0), second(1), late(2);
  const Peers firsts = {{1, second.address()}, {2, late.address()}};
  const PeerAddress unused = AddressOf(5, Loopback(1));
  ASSERT_THAT(first->Start(firsts), IsOk());
  ASSERT_THAT(second->Start(Peers{{0, first.address()}, {5, unused}}), IsOk());
  ASSERT_THAT(late->Start(Peers{{0, first.address()}, {5, unused}}), IsOk());
  ASSERT_THAT(first->Connect(std::vector{1}, In(kPatience)), IsOk());
  first->ReportLoss(5, "rank 5 was lost: its process ended");
  EXPECT_THAT(second.WaitForLoss(5), Optional(std::string("rank 5 was lost: its process ended")));
  ASSERT_THAT(first->Connect(std::vector{2}, In(kPatience)), IsOk());
  EXPECT_THAT(late.WaitForLoss(5), Optional(std::string("rank 5 was lost: its process ended")));
  EXPECT_EQ(first.losses(), 0);
}

TEST(Loss, OfAPeerReportedByOthersEndsIt) {
  TestWorld world(3);
  world.ConnectAll();
  world[0]->ReportLoss(2, "rank 2 was lost: so they say");
  for (const int rank : {0, 1}) EXPECT_THAT(world[rank].WaitForLoss(2), Optional(HasSubstr("so they say")));
  EXPECT_THAT(world[2].WaitForLoss(0), Optional(HasSubstr("has given rank 2 up")));
}

// --- Strangers ---

HandshakeIdentity Identity(int rank, uint64_t epoch = 1) {
  return {"job", epoch, rank, Role::kRank};
}

absl::StatusOr<Connected> Knock(const Endpoint& endpoint, const HandshakeIdentity& identity,
                                const std::string& secret = kTestSecret) {
  return ConnectAuthenticated(
      "the hub", [&](TimePoint until) { return ConnectTcp(endpoint, until); }, identity, secret, In(kPatience));
}

TEST(Strangers, AreRefusedWhileATransferRuns) {
  TestWorld world(2);
  std::atomic<bool> stop = false;
  const auto run = [&](int rank) {
    const auto streams = world[rank]->Open(7, {1 - rank});
    for (uint64_t round = 0; !stop || round < 3; ++round) {
      std::string in((size_t{1} << 20) + 1, '\0');
      const std::string out = Pattern(2 * round + rank, in.size());
      ASSERT_THAT(Transfer(*streams, 1 - rank, out, in, round, In(kPatience)), IsOk());
      ASSERT_TRUE(in == Pattern(2 * round + 1 - rank, in.size()));
      // Both go on or both stop.
      std::string last(1, stop ? 'y' : 'n');
      std::string others(1, '\0');
      ASSERT_THAT(Transfer(*streams, 1 - rank, last, others, 1, In(kPatience)), IsOk());
      if (last == "y" || others == "y") return;
    }
  };
  auto first = std::async(std::launch::async, run, 0);
  auto second = std::async(std::launch::async, run, 1);
  const Endpoint target = world[1]->endpoint();
  std::vector<UniqueFd> babblers;
  for (int i = 0; i < 50; ++i) {
    auto stranger = ConnectTcp(target, In(kPatience));
    ASSERT_THAT(stranger, IsOk());
    SendAll(stranger->get(), AsBytes(Pattern(i, 1 + 40 * i)), In(1000)).IgnoreError();
    babblers.push_back(*std::move(stranger));
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(Knock(target, Identity(0), "another secret"), MatchesStatus(StatusCode::kUnauthenticated, "secret"));
    EXPECT_THAT(Knock(target, Identity(0, 0)), MatchesStatus(StatusCode::kAborted, "belongs to epoch 0"));
    EXPECT_THAT(Knock(target, Identity(0, 2)), MatchesStatus(StatusCode::kCancelled, "belongs to epoch 1"));
    EXPECT_THAT(Knock(target, {"other job", 1, 0, Role::kRank}), MatchesStatus(StatusCode::kUnauthenticated, "job"));
    // Of the job, but with nothing to do here: let in, and closed.
    for (const int rank : {7, 1}) {
      auto idle = Knock(target, Identity(rank));
      std::byte byte;
      EXPECT_TRUE(!idle.ok() || !ReceiveExactly(idle->fd.get(), {&byte, 1}, In(kPatience)).ok());
    }
  }
  stop = true;
  first.get();
  second.get();
  EXPECT_EQ(world[0].losses() + world[1].losses(), 0);
  EXPECT_GE(world[1]->counts().refused, 15);
}

TEST(Strangers, APeerOfAnotherEpochOrSecretIsLostWithTheReason) {
  TestHub second(1);
  ASSERT_THAT(second->Start(Peers{}), IsOk());
  const std::pair<uint64_t, std::string> kReasons[] = {
      {2, "this job is in epoch 2; rank 1 belongs to epoch 1: it was left over from before a restart"},
      {0, "this job is in epoch 1 (rank 1); this process belongs to epoch 0: it was left over from before a restart"},
      {1, "another secret"}};
  for (const auto& [epoch, what] : kReasons) {
    TestSetup setup;
    setup.epoch = epoch;
    if (epoch == 1) setup.secret = "another secret";
    TestHub first(0, setup);
    const Peers peers = {{1, second.address()}};
    ASSERT_THAT(first->Start(peers), IsOk());
    EXPECT_THAT(first->Connect(std::vector{1}, In(kPatience)), MatchesStatus(StatusCode::kUnavailable, what));
    EXPECT_THAT(first.WaitForLoss(1), Optional(HasSubstr("rank 1 on host h1 was lost")));
    EXPECT_THAT(Send(*first->Open(1, {1}), 1, "x", In(kPatience)), MatchesStatus(StatusCode::kUnavailable, what));
  }
}

TEST(Strangers, WhoAnswersInAPeersPlaceIsNotTakenForIt) {
  TestHub second(2);
  ASSERT_THAT(second->Start(Peers{}), IsOk());
  TestHub first(0);
  const Peers peers = {{1, AddressOf(1, second->endpoint())}};
  ASSERT_THAT(first->Start(peers), IsOk());
  EXPECT_THAT(first->Connect(std::vector{1}, In(kPatience)),
              MatchesStatus(StatusCode::kUnavailable, "in its place answered rank 2"));
}

// --- A peer that holds the secret, and errs ---

class Erring : public testing::Test {
 protected:
  void SetUp() override {
    const Peers peers = {{0, AddressOf(0, Loopback(1))}};
    ASSERT_THAT(hub_->Start(peers), IsOk());
  }

  // As rank 0, sends these bytes after the handshake.
  UniqueFd Say(const std::string& bytes) {
    auto connected = Knock(hub_->endpoint(), Identity(0));
    EXPECT_THAT(connected, IsOk());
    if (!connected.ok()) return {};
    EXPECT_THAT(SendAll(connected->fd.get(), AsBytes(bytes), In(kPatience)), IsOk());
    return std::move(connected->fd);
  }

  TestHub hub_{1};
};

std::string ControlFrame(FrameType type, uint32_t sequence, const std::string& payload, uint64_t epoch = 1) {
  return EncodeFrame({.type = static_cast<uint16_t>(type), .epoch = epoch, .sequence = sequence}, payload);
}

TEST_F(Erring, NoPurpose) {
  const UniqueFd fd = Say(std::string(100, 'g'));
  EXPECT_THAT(hub_.WaitForLoss(0), Optional(HasSubstr("malformed frame")));
}

TEST_F(Erring, AnotherEpochsPurpose) {
  const UniqueFd fd = Say(EncodePurpose(2, {.control = true}));
  EXPECT_THAT(hub_.WaitForLoss(0), Optional(HasSubstr("epoch 2")));
}

TEST_F(Erring, AFrameTooMany) {
  const UniqueFd fd = Say(EncodePurpose(1, {.control = true}) + ControlFrame(FrameType::kHeartbeat, 1, "") +
                          ControlFrame(FrameType::kHeartbeat, 1, ""));
  EXPECT_THAT(hub_.WaitForLoss(0), Optional(HasSubstr("frame 1 where frame 2 is due")));
}

TEST_F(Erring, AFrameTooLong) {
  const UniqueFd fd = Say(EncodePurpose(1, {.control = true}) +
                          ControlFrame(FrameType::kAnnouncement, 1, std::string(kMaxControlPayload + 1, 'x')));
  EXPECT_THAT(hub_.WaitForLoss(0), Optional(HasSubstr("over the cap")));
}

TEST_F(Erring, AFrameOfNoKnownType) {
  const UniqueFd fd = Say(EncodePurpose(1, {.control = true}) + ControlFrame(static_cast<FrameType>(99), 1, ""));
  EXPECT_THAT(hub_.WaitForLoss(0), Optional(HasSubstr("malformed frame: type 99")));
}

TEST_F(Erring, AnAnnouncementThatIsNone) {
  const UniqueFd fd = Say(EncodePurpose(1, {.control = true}) + ControlFrame(FrameType::kAnnouncement, 1, "short"));
  EXPECT_THAT(hub_.WaitForLoss(0), Optional(HasSubstr("malformed frame: no announcement")));
}

TEST_F(Erring, ASecondControlConnectionIsClosedAndTheFirstStays) {
  const UniqueFd first = Say(EncodePurpose(1, {.control = true}));
  EXPECT_THAT(hub_->Connect(std::vector{0}, In(kPatience)), IsOk());
  const UniqueFd second = Say(EncodePurpose(1, {.control = true}));
  std::byte byte;
  EXPECT_THAT(ReceiveExactly(second.get(), {&byte, 1}, In(kPatience)), MatchesStatus(StatusCode::kUnavailable, ""));
  EXPECT_EQ(hub_.losses(), 0);
}

TEST_F(Erring, WhoIsLostAndComesBackIsTold) {
  { const UniqueFd fd = Say(EncodePurpose(1, {.control = true})); }
  EXPECT_THAT(hub_.WaitForLoss(0), Optional(HasSubstr("its connection ended")));
  const UniqueFd fd = Say(EncodePurpose(1, {.control = true}));
  std::string header(kFrameHeaderBytes, '\0');
  ASSERT_THAT(ReceiveExactly(fd.get(), AsMutableBytes(header), In(kPatience)), IsOk());
  EXPECT_EQ(header[4], static_cast<char>(FrameType::kLoss));
}

// --- Want of descriptors ---

TEST(Descriptors, WhenTheyAreShortConnectionsWaitAndTheProcessorRests) {
  support::RunProcesses(1, [](const support::Rank&) {
    // UBSan checks objects through a pipe when it first meets their type: all types come by while there are
    // descriptors, and nothing is matched while there are none.
    TestWorld(2).ConnectAll();
    TestWorld world(2);
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    std::vector<UniqueFd> hoard;  // all there are, but for one
    rlimit tight = limit;
    tight.rlim_cur = 64;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
    while (auto fd = UniqueFd(dup(0))) hoard.push_back(std::move(fd));
    hoard.pop_back();
    const auto before = support::ProcessorTime();
    const absl::Status short_of_them = world[0]->Connect(std::vector{1}, In(1000));
    const auto spent = support::ProcessorTime() - before;
    hoard.clear();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_THAT(short_of_them, MatchesStatus(StatusCode::kDeadlineExceeded, "rank 1"));
    EXPECT_LT(spent, std::chrono::milliseconds(500));
    EXPECT_THAT(world[0]->Connect(std::vector{1}, In(kPatience)), IsOk());
    EXPECT_EQ(world[0].losses() + world[1].losses(), 0);
  });
}

}  // namespace
}  // namespace gyre::tcp
