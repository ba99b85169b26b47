// Hubs over a network that errs (support/fault_proxy.h): all ends in success or in a status, and in time.
#include <future>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "support/fault_proxy.h"
#include "transport/tcp/hub.h"
#include "transport/tcp/hub_fixture.h"

namespace gyre::tcp {
namespace {

using support::Direction;
using support::Fault;
using support::FaultProxy;
using testing::AnyOf;

constexpr int kControl = 0;  // the proxy's connections, in the order in which they are made
constexpr int kData = 1;
constexpr int kHandshakeToTarget = 88 + 36;  // hello and proof

// Two ranks; rank 0's connections to rank 1 go through the proxy.
class FaultyNetwork : public testing::Test {
 protected:
  void Start(const HubOptions& options = PatientOptions()) {
    first_ = std::make_unique<TestHub>(0, TestSetup::With(options));
    second_ = std::make_unique<TestHub>(1, TestSetup::With(options));
    proxy_ = std::make_unique<FaultProxy>((*second_)->endpoint());
    const Peers of_first = {{1, AddressOf(1, proxy_->endpoint())}};
    const Peers of_second = {{0, first_->address()}};
    ASSERT_THAT((*first_)->Start(of_first), IsOk());
    ASSERT_THAT((*second_)->Start(of_second), IsOk());
  }

  void Reset() {
    out_.reset();
    in_.reset();
    first_.reset();
    second_.reset();
    proxy_.reset();
  }

  // Control first, so that it is the proxy's connection 0, then a data connection in use.
  void Connect() {
    ASSERT_THAT((*first_)->Connect(std::vector{1}, In(kPatience)), IsOk());
    ASSERT_THAT((*second_)->Connect(std::vector{0}, In(kPatience)), IsOk());
    out_ = (*first_)->Open(9, {1});
    in_ = (*second_)->Open(9, {0});
    ASSERT_THAT(Send(*out_, 1, "x", In(kPatience)), IsOk());
    ASSERT_EQ(Receive(*in_, 0, 1, In(kPatience)).value_or(""), "x");
    ASSERT_EQ(proxy_->connections(), 2);
  }

  // Both ways at once; what each rank ends with.
  std::pair<absl::Status, absl::Status> Exchange(size_t size, int deadline_ms) {
    const auto run = [size, deadline_ms](Streams& streams, int self) -> absl::Status {
      std::string in(size, '\0');
      const absl::Status status = Transfer(streams, 1 - self, Pattern(self, size), in, self, In(deadline_ms));
      if (status.ok() && in != Pattern(1 - self, size)) return absl::InternalError("other bytes came");
      return status;
    };
    auto other = std::async(std::launch::async, [&] { return run(*in_, 1); });
    absl::Status own = run(*out_, 0);
    return {own, other.get()};
  }

  Hub& first() { return *first_->operator->(); }

  std::unique_ptr<TestHub> first_, second_;
  std::unique_ptr<FaultProxy> proxy_;
  std::unique_ptr<Streams> out_, in_;
};

TEST_F(FaultyNetwork, AFlippedBitInAControlFrameIsNoticed) {
  HubOptions options = PatientOptions();
  options.heartbeat_interval = std::chrono::milliseconds(10);
  for (const Direction direction : {Direction::kToTarget, Direction::kToClient}) {
    for (const int place : {0, 4, 8, 16, 20, 24, 31}) {
      SCOPED_TRACE(place);
      Reset();
      Start(options);
      Connect();
      TestHub& receiver = direction == Direction::kToTarget ? *second_ : *first_;
      const int sender = direction == Direction::kToTarget ? 0 : 1;
      // In a heartbeat that is still to come, ten from now.
      proxy_->Set(direction, {.kind = Fault::Kind::kFlip,
                              .at = proxy_->bytes(kControl, direction) + 10 * int64_t{kFrameHeaderBytes} + place,
                              .connection = kControl});
      EXPECT_THAT(receiver.WaitForLoss(sender), Optional(AnyOf(HasSubstr("frame"), HasSubstr("epoch"))));
      // The other learns of it, by word or by the end of the connection.
      TestHub& other = direction == Direction::kToTarget ? *first_ : *second_;
      EXPECT_THAT(other.WaitForLoss(1 - sender), Optional(HasSubstr("was lost")));
    }
  }
}

TEST_F(FaultyNetwork, AFlippedBitInAStreamIsTheReadersToNotice) {
  Start();
  Connect();
  proxy_->Set(
      Direction::kToTarget,
      {.kind = Fault::Kind::kFlip, .at = proxy_->bytes(kData, Direction::kToTarget) + 1000, .connection = kData});
  ASSERT_THAT(Send(*out_, 1, std::string(5000, 'a'), In(kPatience)), IsOk());
  std::string expected(5000, 'a');
  expected[1000] ^= 1;
  EXPECT_EQ(Receive(*in_, 0, 5000, In(kPatience)).value_or(""), expected);
  EXPECT_EQ(first_->losses() + second_->losses(), 0);
}

TEST_F(FaultyNetwork, FlippedBitsWhileConnecting) {
  for (const int place : {0, 30, 87, 88, 100, kHandshakeToTarget, kHandshakeToTarget + 8, kHandshakeToTarget + 30,
                          kHandshakeToTarget + 40}) {
    SCOPED_TRACE(place);
    Reset();
    Start();
    proxy_->Set(Direction::kToTarget, {.kind = Fault::Kind::kFlip, .at = place, .connection = kControl});
    // Tried again over a connection without the fault, or refused for good.
    const absl::Status status = first().Connect(std::vector{1}, In(kPatience));
    EXPECT_THAT(status, testing::AnyOf(IsOk(), MatchesStatus(StatusCode::kUnavailable, "rank 1 on host h1")));
  }
}

TEST_F(FaultyNetwork, ASilentNetworkIsALossForBoth) {
  Start({.heartbeat_interval = std::chrono::milliseconds(50), .heartbeat_timeout = std::chrono::milliseconds(1500)});
  Connect();
  proxy_->Set(Direction::kToTarget, {.kind = Fault::Kind::kDrop});
  proxy_->Set(Direction::kToClient, {.kind = Fault::Kind::kDrop});
  const auto [own, others] = Exchange(1000, kPatience);
  EXPECT_THAT(own, MatchesStatus(StatusCode::kUnavailable, "rank 1 on host h1 was lost: no heartbeat for 1.5 s"));
  EXPECT_THAT(others, MatchesStatus(StatusCode::kUnavailable, "rank 0 on host h0 was lost: no heartbeat for 1.5 s"));
}

TEST_F(FaultyNetwork, SilenceWhileConnectingIsTriedAgain) {
  HubOptions options = PatientOptions();
  options.connect_timeout = std::chrono::milliseconds(200);
  Start(options);
  proxy_->Set(Direction::kToClient, {.kind = Fault::Kind::kDrop, .at = 20, .connection = 0});
  EXPECT_THAT(first().Connect(std::vector{1}, In(kPatience)), IsOk());
  EXPECT_GE(proxy_->connections(), 2);
  EXPECT_EQ(first_->losses() + second_->losses(), 0);
}

TEST_F(FaultyNetwork, ConnectionsThatBreakEarlyAreTriedAgain) {
  for (const Fault::Kind kind : {Fault::Kind::kTruncate, Fault::Kind::kReset, Fault::Kind::kHalfClose}) {
    for (const int place : {0, 50, 88, 110}) {
      SCOPED_TRACE(absl::StrCat(static_cast<int>(kind), " after ", place));
      Reset();
      Start();
      proxy_->Set(Direction::kToTarget, {.kind = kind, .at = place, .connection = 0});
      EXPECT_THAT(first().Connect(std::vector{1}, In(kPatience)), IsOk());
      EXPECT_EQ(first_->losses() + second_->losses(), 0);
    }
  }
}

TEST_F(FaultyNetwork, DelayIsNoLoss) {
  Start();
  Connect();
  for (const Direction direction : {Direction::kToTarget, Direction::kToClient}) {
    proxy_->Set(direction, {.kind = Fault::Kind::kDelay, .delay = std::chrono::milliseconds(30)});
  }
  const auto [own, others] = Exchange(3'000'000, kPatience);
  EXPECT_THAT(own, IsOk());
  EXPECT_THAT(others, IsOk());
  EXPECT_EQ(first_->losses() + second_->losses(), 0);
}

TEST_F(FaultyNetwork, AControlConnectionThatBreaksIsALossForBoth) {
  for (const Fault::Kind kind : {Fault::Kind::kTruncate, Fault::Kind::kReset, Fault::Kind::kHalfClose}) {
    SCOPED_TRACE(static_cast<int>(kind));
    Reset();
    Start();
    Connect();
    proxy_->Set(Direction::kToTarget, {.kind = kind, .connection = kControl});
    EXPECT_THAT(second_->WaitForLoss(0), Optional(HasSubstr("rank 0 on host h0 was lost: its connection ended")));
    EXPECT_THAT(first_->WaitForLoss(1), Optional(HasSubstr("rank 1 on host h1 was lost")));
    const auto [own, others] = Exchange(1000, kPatience);
    EXPECT_THAT(own, MatchesStatus(StatusCode::kUnavailable, "was lost"));
    EXPECT_THAT(others, MatchesStatus(StatusCode::kUnavailable, "was lost"));
  }
}

TEST_F(FaultyNetwork, AStreamThatBreaksEndsInAStatusForBoth) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::minstd_rand random(seed);
  for (const Fault::Kind kind : {Fault::Kind::kTruncate, Fault::Kind::kReset}) {
    for (int round = 0; round < 4; ++round) {
      Reset();
      Start();
      Connect();
      const Direction direction = random() % 2 == 0 ? Direction::kToTarget : Direction::kToClient;
      const auto at = static_cast<int64_t>(random() % 2'000'000);
      SCOPED_TRACE(absl::StrCat(static_cast<int>(kind), " after ", at));
      proxy_->Set(direction, {.kind = kind, .at = at, .connection = kData});
      const auto [own, others] = Exchange(3'000'000, kPatience);
      const auto names_first = MatchesStatus(StatusCode::kUnavailable, "rank 0 on host h0 ended the connection");
      const auto names_second = MatchesStatus(StatusCode::kUnavailable, "rank 1 on host h1 ended the connection");
      // Who was to receive cannot have; the other may have been done before.
      const bool first_receives = direction == Direction::kToClient;
      EXPECT_THAT(own, testing::Conditional(first_receives, names_second, AnyOf(IsOk(), names_second)));
      EXPECT_THAT(others, testing::Conditional(first_receives, AnyOf(IsOk(), names_first), names_first));
    }
  }
}

TEST_F(FaultyNetwork, AStreamThatIsHalfClosedEndsForItsReader) {
  Start();
  Connect();
  proxy_->Set(
      Direction::kToTarget,
      {.kind = Fault::Kind::kHalfClose, .at = proxy_->bytes(kData, Direction::kToTarget) + 100, .connection = kData});
  ASSERT_THAT(Send(*out_, 1, std::string(1000, 'a'), In(kPatience)), IsOk());
  EXPECT_THAT(Receive(*in_, 0, 100, In(kPatience)), IsOk());
  EXPECT_THAT(Receive(*in_, 0, 1, In(kPatience)), MatchesStatus(StatusCode::kUnavailable, "ended the connection"));
  // The other direction goes on.
  ASSERT_THAT(Send(*in_, 0, "y", In(kPatience)), IsOk());
  EXPECT_EQ(Receive(*out_, 1, 1, In(kPatience)).value_or(""), "y");
}

TEST_F(FaultyNetwork, WhateverBreaksNothingHangs) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::minstd_rand random(seed);
  const HubOptions options{.heartbeat_interval = std::chrono::milliseconds(20),
                           .heartbeat_timeout = std::chrono::milliseconds(700),
                           .connect_timeout = std::chrono::milliseconds(300)};
  for (int round = 0; round < 12; ++round) {
    Reset();
    Start(options);
    const auto kind = static_cast<Fault::Kind>(1 + random() % 6);
    const Fault fault{.kind = kind,
                      .at = static_cast<int64_t>(random() % (random() % 2 == 0 ? 300 : 1'000'000)),
                      .delay = std::chrono::milliseconds(20),
                      .connection = static_cast<int>(random() % 3) - 1};
    SCOPED_TRACE(
        absl::StrCat("round ", round, ": fault ", static_cast<int>(kind), " at ", fault.at, " of ", fault.connection));
    proxy_->Set(random() % 2 == 0 ? Direction::kToTarget : Direction::kToClient, fault);
    out_ = first().Open(9, {1});
    in_ = (*second_)->Open(9, {0});
    const TimePoint begin = std::chrono::steady_clock::now();
    const auto [own, others] = Exchange(500'000, 3000);
    for (const absl::Status& status : {own, others}) {
      // A flipped bit of the stream is the only thing that a stream does not notice.
      const bool flipped = absl::IsInternal(status) && kind == Fault::Kind::kFlip;
      EXPECT_TRUE(status.ok() || flipped || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) << status;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  }
}

}  // namespace
}  // namespace gyre::tcp
