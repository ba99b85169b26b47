// Hubs among themselves, all well: bytes, channels, meeting, leaving.
#include "transport/tcp/hub.h"

#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "net/socket.h"
#include "support/usage.h"
#include "transport/tcp/hub_fixture.h"

namespace gyre::tcp {
namespace {

// --- Bytes ---

class Transfers : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, Transfers, testing::Values("127.0.0.1", "::1"),
                         [](const auto& info) { return info.param == "::1" ? "V6" : "V4"; });

TEST_P(Transfers, BothWaysAtOnceInOddPieces) {
  Endpoint bind = Loopback(0);
  bind.host = GetParam();
  TestWorld world(2, TestSetup::At(bind));
  constexpr size_t kSize = (size_t{24} << 20) + 13;
  const auto run = [&](int rank) {
    const int peer = 1 - rank;
    const auto streams = world[rank]->Open(7, {peer});
    std::string in(kSize, '\0');
    EXPECT_THAT(Transfer(*streams, peer, Pattern(rank, kSize), in, 100 + rank, In(kPatience)), IsOk());
    EXPECT_TRUE(in == Pattern(peer, kSize));
  };
  auto other = std::async(std::launch::async, run, 1);
  run(0);
  other.get();
  EXPECT_EQ(world[0].losses() + world[1].losses(), 0);
}

TEST(Channels, AStalledOneHoldsUpNoOther) {
  TestWorld world(2);
  const auto stalled = world[0]->Open(1, {1});
  const auto stalled_end = world[1]->Open(1, {0});
  const auto filled = Fill(*stalled, 1, size_t{256} << 20);
  ASSERT_THAT(filled, IsOk());
  EXPECT_GT(*filled, 0u);
  EXPECT_LT(*filled, size_t{256} << 20);  // nothing is buffered without end

  const auto flowing = world[0]->Open(2, {1});
  auto receiver =
      std::async(std::launch::async, [&] { return Receive(*world[1]->Open(2, {0}), 0, 5'000'001, In(kPatience)); });
  EXPECT_THAT(Send(*flowing, 1, Pattern(2, 5'000'001), In(kPatience)), IsOk());
  const auto received = receiver.get();
  ASSERT_THAT(received, IsOk());
  EXPECT_TRUE(*received == Pattern(2, 5'000'001));
  EXPECT_THAT(stalled->Write(1, std::vector<Bytes>{AsBytes("x")}),
              testing::Truly([](const auto& written) { return written.ok() && *written == 0; }));

  const auto drained = Receive(*stalled_end, 0, *filled, In(kPatience));
  ASSERT_THAT(drained, IsOk());
  EXPECT_TRUE(*drained == std::string(*filled, 'x'));
}

TEST(Channels, SixRoundARingOfThree) {
  TestWorld world(3);
  constexpr int kChannels = 6;
  constexpr size_t kSize = 100'003;  // fits a connection: sends do not wait for receives
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    for (int channel = 0; channel < kChannels; ++channel) {
      threads.emplace_back([&world, rank, channel] {
        const int next = (rank + 1) % 3;
        const int previous = (rank + 2) % 3;
        const auto streams = world[rank]->Open(channel, {next, previous});
        EXPECT_THAT(Send(*streams, next, Pattern(10 * channel + rank, kSize), In(kPatience)), IsOk());
        const auto received = Receive(*streams, previous, kSize, In(kPatience));
        EXPECT_THAT(received, IsOk());
        EXPECT_TRUE(received.ok() && *received == Pattern(10 * channel + previous, kSize));
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Channels, OneThatIsOpenedLateFindsWhatWasSent) {
  TestWorld world(2);
  const auto early = world[0]->Open(5, {1});
  const auto filled = Fill(*early, 1, size_t{256} << 20);
  ASSERT_THAT(filled, IsOk());
  const auto other = world[1]->Open(6, {0});  // not the one
  EXPECT_THAT(Receive(*other, 0, 1, In(100)), MatchesStatus(StatusCode::kDeadlineExceeded, ""));
  const auto late = world[1]->Open(5, {0});
  const auto received = Receive(*late, 0, *filled, In(kPatience));
  ASSERT_THAT(received, IsOk());
  EXPECT_TRUE(*received == std::string(*filled, 'x'));
}

TEST(Channels, TheEndOfOneIsNotTheEndOfThePeer) {
  TestWorld world(2);
  const auto reader = world[1]->Open(5, {0});
  {
    const auto writer = world[0]->Open(5, {1});
    ASSERT_THAT(Send(*writer, 1, "last words", In(kPatience)), IsOk());
  }
  EXPECT_THAT(Receive(*reader, 0, 10, In(kPatience)), IsOk());
  EXPECT_THAT(Receive(*reader, 0, 1, In(kPatience)),
              MatchesStatus(StatusCode::kUnavailable, "rank 0 on host h0 ended the connection of channel 5"));
  EXPECT_THAT(world[1]->Connect(std::vector{0}, In(kPatience)), IsOk());
  EXPECT_EQ(world[0].losses() + world[1].losses(), 0);
}

TEST(Channels, WhoIsNoPeerIsRefused) {
  TestWorld world(2);
  const auto streams = world[0]->Open(5, {1, 8});
  std::byte byte;
  EXPECT_THAT(streams->Read(7, {&byte, 1}), MatchesStatus(StatusCode::kInvalidArgument, "rank 7"));
  EXPECT_THAT(streams->Read(8, {&byte, 1}), MatchesStatus(StatusCode::kInvalidArgument, "rank 8"));
  EXPECT_THAT(world[0]->Connect(std::vector{7}, In(0)), MatchesStatus(StatusCode::kInvalidArgument, "rank 7"));
}

// --- Meeting ---

TEST(Meeting, AWorldConnects) {
  TestWorld world(5);
  world.ConnectAll();
  EXPECT_EQ(world[0]->WhyNotConnected(4), "");
}

TEST(Meeting, ConnectBeforeThePeerListens) {
  UniqueFd reserved = *ListenTcp(Loopback(0), 1, In(0));
  const Endpoint later = *LocalEndpoint(reserved.get());
  TestHub first(0);
  const Peers of_first = {{1, AddressOf(1, later)}};
  ASSERT_THAT(first->Start(of_first), IsOk());
  auto connected = std::async(std::launch::async, [&] { return first->Connect(std::vector{1}, In(kPatience)); });
  const auto streams = first->Open(3, {1});
  auto sent = std::async(std::launch::async, [&] { return Send(*streams, 1, "hello", In(kPatience)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  reserved.Reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  TestHub second(1, TestSetup::At(later));
  const Peers of_second = {{0, first.address()}};
  ASSERT_THAT(second->Start(of_second), IsOk());
  EXPECT_THAT(connected.get(), IsOk());
  EXPECT_THAT(sent.get(), IsOk());
  EXPECT_EQ(Receive(*second->Open(3, {0}), 0, 5, In(kPatience)).value_or(""), "hello");
}

TEST(Meeting, WhoNeverComesIsNamedAtTheDeadline) {
  const Endpoint nobody = *LocalEndpoint(ListenTcp(Loopback(0), 1, In(0))->get());
  TestHub hub(1);
  const Peers peers = {{0, AddressOf(0, nobody)}, {2, AddressOf(2, nobody)}};
  ASSERT_THAT(hub->Start(peers), IsOk());
  const TimePoint begin = std::chrono::steady_clock::now();
  const absl::Status status = hub->Connect(std::vector{0, 2}, In(300));
  const Duration took = std::chrono::steady_clock::now() - begin;
  EXPECT_THAT(status, MatchesStatus(StatusCode::kDeadlineExceeded, "rank 2 on host h2"));
  EXPECT_THAT(status, MatchesStatus(StatusCode::kDeadlineExceeded, "Connection refused"));
  EXPECT_THAT(status, MatchesStatus(StatusCode::kDeadlineExceeded, "rank 0 on host h0"));
  EXPECT_THAT(status, MatchesStatus(StatusCode::kDeadlineExceeded, "it has not connected"));
  EXPECT_GE(took, std::chrono::milliseconds(300));
  EXPECT_LT(took, std::chrono::seconds(5));
  EXPECT_THAT(hub->WhyNotConnected(2), HasSubstr("Connection refused"));
  EXPECT_EQ(hub.losses(), 0);
}

TEST(Meeting, WhatIsNoPeerIsRefusedAtTheStart) {
  TestHub hub(1);
  Endpoint named = Loopback(1);
  named.host = "some.name";
  const Peers unnamed = {{0, AddressOf(0, named)}};
  EXPECT_THAT(hub->Start(unnamed), MatchesStatus(StatusCode::kInvalidArgument, "some.name"));
  const Peers itself = {{1, AddressOf(1, Loopback(1))}};
  EXPECT_THAT(hub->Start(itself), MatchesStatus(StatusCode::kInvalidArgument, "rank 1"));
  EXPECT_THAT(hub->Start({}), IsOk());
  EXPECT_THAT(hub->Start({}), MatchesStatus(StatusCode::kFailedPrecondition, "before"));
}

TEST(Meeting, AnIdleHubSleeps) {
  HubOptions options = PatientOptions();
  options.heartbeat_interval = std::chrono::milliseconds(100);
  TestWorld world(3, TestSetup::With(options));
  world.ConnectAll();
  const auto before = support::ProcessorTime();
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  // All three: a busy loop would take a second.
  EXPECT_LT(support::ProcessorTime() - before, std::chrono::milliseconds(300));
}

// --- Announcements ---

TEST(Announcements, ReachEveryPeer) {
  TestWorld world(3);
  world.ConnectAll();
  const Announcement announcement{77, StatusCode::kAborted, 2, "rank 2 ran out of patience"};
  world[1]->Announce(announcement);
  EXPECT_THAT(world[0].WaitForAnnouncement(1), Optional(announcement));
  EXPECT_THAT(world[2].WaitForAnnouncement(1), Optional(announcement));
}

TEST(Announcements, ReachWhoIsConnectedWithLater) {
  TestWorld world(2);
  world[0]->Announce({3, StatusCode::kAborted, 1, "first"});
  ASSERT_THAT(world[1]->Connect(std::vector{0}, In(0)), MatchesStatus(StatusCode::kDeadlineExceeded, ""));
  world[0]->Reach(std::vector{1, 17});  // the second is no peer
  const auto heard = world[1].WaitForAnnouncement(0);
  ASSERT_TRUE(heard.has_value());
  EXPECT_EQ(heard->text, "first");
}

TEST(Announcements, ACallIsToldToThoseWhoAreConnected) {
  TestWorld world(3);
  world.ConnectAll();
  const CallNotice notice{77, 4, {.kind = 1, .count = 10}};
  world[1]->TellCall(notice);
  EXPECT_THAT(world[0].WaitForCall(1), Optional(notice));
  EXPECT_THAT(world[2].WaitForCall(1), Optional(notice));
}

TEST(Announcements, LongOnesAreCut) {
  TestWorld world(2);
  world.ConnectAll();
  world[1]->Announce({1, StatusCode::kInternal, -1, std::string(100'000, 'x')});
  EXPECT_THAT(world[0].WaitForAnnouncement(1),
              Optional(Announcement{1, StatusCode::kInternal, -1, std::string(kMaxTextBytes, 'x')}));
}

// --- Leaving ---

TEST(Leaving, WhatWasSentBeforeIsStillRead) {
  TestWorld world(2);
  world.ConnectAll();
  const auto reader = world[1]->Open(1, {0});
  const auto writer = world[0]->Open(1, {1});
  ASSERT_THAT(Send(*writer, 1, Pattern(1, 200'000), In(kPatience)), IsOk());
  world[0]->Close();
  EXPECT_TRUE(world[1].WaitUntilLeft(0));
  const auto received = Receive(*reader, 0, 200'000, In(kPatience));
  ASSERT_THAT(received, IsOk());
  EXPECT_TRUE(*received == Pattern(1, 200'000));
  EXPECT_THAT(Receive(*reader, 0, 1, In(kPatience)),
              MatchesStatus(StatusCode::kUnavailable, "rank 0 on host h0 has left"));
  EXPECT_THAT(Send(*reader, 0, "x", In(kPatience)),
              MatchesStatus(StatusCode::kUnavailable, "rank 0 on host h0 has left"));
  EXPECT_THAT(world[1]->Connect(std::vector{0}, In(kPatience)), IsOk());  // they were connected
  EXPECT_EQ(world[1].losses(), 0);
}

TEST(Leaving, AllAtOnceNobodyIsLost) {
  TestWorld world(4);
  world.ConnectAll();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) threads.emplace_back([&world, rank] { world[rank]->Close(); });
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(world[rank].losses(), 0) << rank;
}

TEST(Leaving, CloseWhileTransfersRun) {
  TestWorld world(2);
  const auto run = [&](int rank) {
    const auto streams = world[rank]->Open(7, {1 - rank});
    std::string in(size_t{1} << 20, '\0');
    absl::Status status;
    while (status.ok()) status = Transfer(*streams, 1 - rank, in, in, 1, In(kPatience));
    return status;
  };
  auto first = std::async(std::launch::async, run, 0);
  auto second = std::async(std::launch::async, run, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  std::thread rival([&] { world[0]->Close(); });
  world[0]->Close();
  rival.join();
  EXPECT_THAT(first.get(), MatchesStatus(StatusCode::kFailedPrecondition, "closed"));
  EXPECT_THAT(second.get(), MatchesStatus(StatusCode::kUnavailable, "rank 0 on host h0"));
  EXPECT_TRUE(world[1].WaitUntilLeft(0));
  EXPECT_THAT(world[0]->Connect(std::vector{1}, In(kPatience)),
              MatchesStatus(StatusCode::kFailedPrecondition, "closed"));
}

TEST(Leaving, CloseWakesWhoWaitsToConnect) {
  TestHub hub(1);
  const Peers peers = {{0, AddressOf(0, Loopback(1))}};
  ASSERT_THAT(hub->Start(peers), IsOk());
  auto waiting = std::async(std::launch::async, [&] { return hub->Connect(std::vector{0}, In(kPatience)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  hub->Close();
  EXPECT_THAT(waiting.get(), MatchesStatus(StatusCode::kFailedPrecondition, "closed"));
}

TEST(Leaving, AHubThatWasNeverStarted) {
  TestHub hub(1);
  hub->Close();
  hub->Announce({});
  EXPECT_THAT(hub->Start({}), MatchesStatus(StatusCode::kFailedPrecondition, "closed"));
}

}  // namespace
}  // namespace gyre::tcp
