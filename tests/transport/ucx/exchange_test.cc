// The UCX transport without UCX: its exchanges over wires in memory, which deliver as UCX may: late, out of order, and
// only while both ends drive them.
#include "transport/ucx/exchange.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transport/tcp/hub_fixture.h"
#include "transport/ucx/channel_streams.h"

namespace gyre::ucx {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;
using tcp::Fill;
using tcp::In;
using tcp::kPatience;
using tcp::Pattern;
using tcp::Receive;
using tcp::Send;
using tcp::Transfer;

// --- Wires ---

struct Parcel {
  Header header{};
  std::string bytes{};
  int lost_peer = -1;  // instead of a message: the connection with that rank fails
};

class TextContent final : public Content {
 public:
  explicit TextContent(std::string bytes) : bytes_(std::move(bytes)) {}
  Bytes bytes() const override { return AsBytes(bytes_); }

 private:
  const std::string bytes_;
};

// What has been sent to each address and not been taken there.
class Network {
 public:
  void Put(const std::string& address, Parcel parcel) {
    const std::lock_guard lock(mutex_);
    boxes_[address].push_back(std::move(parcel));
    if (const auto bell = bells_.find(address); bell != bells_.end()) (void)!eventfd_write(bell->second, 1);
  }
  std::deque<Parcel> Take(const std::string& address) {
    const std::lock_guard lock(mutex_);
    return std::exchange(boxes_[address], {});
  }
  bool HasFor(const std::string& address) {
    const std::lock_guard lock(mutex_);
    return !boxes_[address].empty();
  }
  void SetBell(const std::string& address, int bell) {
    const std::lock_guard lock(mutex_);
    if (bell < 0) bells_.erase(address);
    if (bell >= 0) bells_[address] = bell;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::deque<Parcel>> boxes_;
  std::map<std::string, int> bells_;
};

class FakeWire final : public Wire {
 public:
  FakeWire(Network& network, std::string address, Events events)
      : network_(network), address_(std::move(address)), events_(std::move(events)) {
    bell_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    network_.SetBell(address_, bell_.get());
  }
  ~FakeWire() override { network_.SetBell(address_, -1); }

  const std::string& address() const override { return address_; }
  absl::Status Connect(int peer, std::string_view address) override {
    if (address == "nowhere") return absl::UnavailableError("no way there");
    addresses_[peer] = address;
    return absl::OkStatus();
  }
  void Send(int peer, std::unique_ptr<Packet> packet) override {
    if (packet->size == 0) return Deliver(peer, std::move(packet));  // overtakes all data
    leaving_.emplace_back(peer, std::move(packet));
  }
  int descriptor() const override { return bell_.get(); }
  bool Arm() override {
    eventfd_t count = 0;
    (void)!eventfd_read(bell_.get(), &count);
    return leaving_.empty() && fetched_.empty() && !network_.HasFor(address_);
  }

  bool Progress() override {
    if (auto leaving = std::exchange(leaving_, {}); !leaving.empty()) {
      for (auto& [peer, packet] : leaving) Deliver(peer, std::move(packet));
      return true;
    }
    std::deque<Parcel> fetched = std::exchange(fetched_, {});
    for (Parcel& parcel : fetched) Hand(std::move(parcel));
    std::deque<Parcel> came = network_.Take(address_);
    for (Parcel& parcel : came) {
      if (parcel.lost_peer >= 0) events_.on_failure(parcel.lost_peer, parcel.bytes);
      if (!events_.accept(parcel.header, parcel.bytes.size())) continue;
      if (!parcel.bytes.empty() && random_() % 2 == 0) {
        fetched_.push_back(std::move(parcel));  // by rendezvous
      } else {
        Hand(std::move(parcel));
      }
    }
    return !fetched.empty() || !came.empty();
  }

 private:
  void Deliver(int peer, std::unique_ptr<Packet> packet) {
    const auto data = AsText({packet->data.get(), packet->size});
    network_.Put(addresses_.at(peer), {.header = packet->header, .bytes = std::string(data)});
    events_.on_sent(std::move(packet));
  }
  void Hand(Parcel parcel) const {
    const Header header = parcel.header;
    events_.on_message(header, std::make_unique<TextContent>(std::move(parcel.bytes)));
  }

  Network& network_;
  const std::string address_;
  const Events events_;
  UniqueFd bell_;
  std::map<int, std::string> addresses_;
  std::vector<std::pair<int, std::unique_ptr<Packet>>> leaving_;
  std::deque<Parcel> fetched_;
  std::minstd_rand random_{7};
};

// --- Ranks ---

Token TokenFor(int sender, int receiver) {
  TokenOf of{.secret = tcp::kTestSecret, .job_id = "job", .epoch = 1, .sender = sender, .receiver = receiver};
  of.nonce.fill(static_cast<std::byte>(receiver));
  return *MakeToken(of);
}

// Ranks of as many hosts, all started.
class World {
 public:
  explicit World(int size) {
    for (int rank = 0; rank < size; ++rank) {
      auto made = Exchange::Create(rank, [&](Events events) -> absl::StatusOr<std::unique_ptr<Wire>> {
        return std::make_unique<FakeWire>(network, absl::StrCat("wire ", rank), std::move(events));
      });
      exchanges.push_back(*made);
    }
    for (int rank = 0; rank < size; ++rank) {
      std::map<int, Peer> peers;
      for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        peers[peer] = {exchanges[static_cast<size_t>(peer)]->wire_address(), absl::StrCat("rank ", peer, " on host b"),
                       TokenFor(peer, rank), TokenFor(rank, peer)};
      }
      EXPECT_THAT(exchanges[static_cast<size_t>(rank)]->Start(peers, [this](int peer) { return EndOf(peer); }), IsOk());
    }
  }

  ~World() {
    for (int rank = 0; rank < static_cast<int>(exchanges.size()); ++rank) End(rank);  // nobody waits for goodbyes
  }

  std::unique_ptr<Streams> Open(int rank, uint64_t channel, const std::vector<int>& peers) {
    return std::make_unique<ChannelStreams>(exchanges[static_cast<size_t>(rank)], channel, peers);
  }
  void End(int rank) {
    const std::lock_guard lock(mutex_);
    ended_.insert(rank);
  }

 private:
  absl::Status EndOf(int rank) {
    const std::lock_guard lock(mutex_);
    if (!ended_.contains(rank)) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("rank ", rank, " was killed"));
  }

  std::mutex mutex_;
  std::set<int> ended_;

 public:
  Network network;
  std::vector<std::shared_ptr<Exchange>> exchanges;  // last: their threads use all the others
};

TEST(UcxExchange, BytesArriveInTheirOrderBothWaysOverSeveralChannels) {
  World world(2);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    for (const uint64_t channel : {7, 8}) {
      threads.emplace_back([&world, rank, channel] {
        const auto streams = world.Open(rank, channel, {1 - rank});
        const uint64_t own = channel * 2 + static_cast<uint64_t>(rank), other = own ^ 1;
        const std::string out = Pattern(own, 5'000'003 + own);
        std::string in(5'000'003 + other, '\0');
        EXPECT_THAT(Transfer(*streams, 1 - rank, out, in, own, In(kPatience)), IsOk());
        EXPECT_TRUE(in == Pattern(other, in.size()));
      });
    }
  }
  for (auto& thread : threads) thread.join();
}

TEST(UcxExchange, AFullStreamHoldsItsSenderBackAndNoOtherChannel) {
  World world(2);
  const auto out = world.Open(0, 1, {1}), other_out = world.Open(0, 2, {1});
  const auto filled = Fill(*out, 1, 100 << 20);
  ASSERT_THAT(filled, IsOk());
  EXPECT_LE(*filled, kWindow);
  EXPECT_GE(*filled, kWindow / 2);
  ASSERT_THAT(Send(*other_out, 1, "passes", In(kPatience)), IsOk());
  const auto in = world.Open(1, 1, {0}), other_in = world.Open(1, 2, {0});  // the sender was early
  EXPECT_EQ(*Receive(*other_in, 0, 6, In(kPatience)), "passes");
  EXPECT_EQ(*Receive(*in, 0, *filled, In(kPatience)), std::string(*filled, 'x'));
}

// Nobody drives the sender's wire but its exchange's thread.
TEST(UcxExchange, WhatWasWrittenArrivesThoughItsWriterDoesSomethingElse) {
  World world(2);
  const auto out = world.Open(0, 1, {1}), in = world.Open(1, 1, {0});
  for (int round = 0; round < 20; ++round) {
    const std::string text = Pattern(static_cast<uint64_t>(round), 1000);
    const Bytes piece[] = {AsBytes(text)};
    ASSERT_EQ(*out->Write(1, piece), text.size());
    EXPECT_EQ(*Receive(*in, 0, text.size(), In(kPatience)), text);
  }
}

TEST(UcxExchange, LastBytesBeforeAStreamOrARankEndsAreReadAndThenItsName) {
  for (const bool closes : {false, true}) {
    World world(2);
    auto out = world.Open(0, 1, {1});
    const std::string text = Pattern(1, 700'000);
    ASSERT_THAT(Send(*out, 1, text, In(kPatience)), IsOk());
    if (closes) {
      world.exchanges[0]->Close();
      EXPECT_THAT(Send(*out, 1, text, In(kPatience)), MatchesStatus(StatusCode::kFailedPrecondition, "closed"));
      world.End(0);
    }
    out.reset();
    const auto in = world.Open(1, 1, {0});
    EXPECT_EQ(*Receive(*in, 0, text.size(), In(kPatience)), text);
    const char* const why = closes ? "rank 0 was killed" : "rank 0 on host b ended its part in channel 1";
    EXPECT_THAT(Receive(*in, 0, 1, In(kPatience)), MatchesStatus(StatusCode::kUnavailable, why));
    EXPECT_THAT(Send(*in, 0, "x", In(kPatience)), MatchesStatus(StatusCode::kUnavailable, why));
  }
}

// One of several tries: the machine may be busy.
TEST(UcxExchange, WhoIsGoneIsNotAwaited) {
  std::chrono::milliseconds took(kPatience);
  for (int round = 0; round < 10 && took >= std::chrono::milliseconds(250); ++round) {
    World world(2);
    const auto out = world.Open(0, 1, {1}), in = world.Open(1, 1, {0});
    ASSERT_THAT(Send(*out, 1, "first", In(kPatience)), IsOk());
    EXPECT_EQ(*Receive(*in, 0, 5, In(kPatience)), "first");
    world.exchanges[0]->Close();  // the other one's thread answers
    const auto begin = std::chrono::steady_clock::now();
    world.exchanges[1]->Close();
    took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  }
  EXPECT_LT(took, std::chrono::milliseconds(250));
}

TEST(UcxExchange, AFailedConnectionEndsItsStreams) {
  World world(3);
  const auto streams = world.Open(0, 1, {1, 2});
  std::thread reader([&] {
    EXPECT_THAT(Receive(*streams, 1, 1, In(kPatience)),
                MatchesStatus(StatusCode::kUnavailable, "rank 1 on host b is not reached by UCX (cable cut)"));
  });
  world.network.Put("wire 0", {.bytes = "cable cut", .lost_peer = 1});
  reader.join();
  const auto other = world.Open(2, 1, {0});
  EXPECT_THAT(Send(*streams, 2, "there", In(kPatience)), IsOk());
  EXPECT_EQ(*Receive(*other, 0, 5, In(kPatience)), "there");
}

// Whoever knows where a wire listens can write to it.
TEST(UcxExchange, StrangersAreNotHeard) {
  World world(3);
  const auto streams = world.Open(1, 1, {0});
  const Token right = TokenFor(0, 1), anothers = TokenFor(2, 1), reflected = TokenFor(1, 0);
  const Message message{.kind = Kind::kData, .sender = 0, .channel = 1, .number = 0};
  for (const Token& token : {anothers, reflected, Token{}}) {
    world.network.Put("wire 1", {.header = Encode(token, message), .bytes = "evil"});
  }
  Header nonsense = Encode(right, message);
  nonsense[sizeof(Token)] = std::byte{77};  // of no known kind
  world.network.Put("wire 1", {.header = nonsense, .bytes = "evil"});
  Message other = message;
  other.sender = 9;  // no peer
  world.network.Put("wire 1", {.header = Encode(right, other), .bytes = "evil"});
  world.network.Put("wire 1", {.header = Encode(right, message), .bytes = "good"});
  EXPECT_EQ(*Receive(*streams, 0, 4, In(kPatience)), "good");
  std::byte byte{};
  EXPECT_EQ(*streams->Read(0, {&byte, 1}), 0u);
}

// A peer that sends more than it may, or the same again, spoils its stream and nothing else.
TEST(UcxExchange, MessagesThatCannotBeEndTheirStream) {
  World world(2);
  const auto streams = world.Open(1, 1, {0});
  const Token token = TokenFor(0, 1);
  const auto put = [&](Kind kind, uint64_t channel, uint64_t number, size_t size) {
    const Message message{.kind = kind, .sender = 0, .channel = channel, .number = number};
    world.network.Put("wire 1", {.header = Encode(token, message), .bytes = std::string(size, 'x')});
  };
  put(Kind::kData, 1, 0, kMostBytes + 1);
  EXPECT_THAT(Receive(*streams, 0, 1, In(kPatience)), MatchesStatus(StatusCode::kUnavailable, "rank 0 on host b sent"));
  const auto credited = world.Open(1, 2, {0});
  put(Kind::kCredit, 2, 5, 0);  // for nothing sent
  EXPECT_THAT(Receive(*credited, 0, 1, In(kPatience)), MatchesStatus(StatusCode::kUnavailable, "channel 2"));
  const auto good = world.Open(1, 3, {0});
  put(Kind::kData, 3, 0, 1);
  put(Kind::kData, 3, 0, 1);
  EXPECT_EQ(*Receive(*good, 0, 1, In(kPatience)), "x");
}

TEST(UcxExchange, SleepersWakeWhenAPeerEnds) {
  World world(2);
  const auto streams = world.Open(0, 1, {1});
  std::byte byte{};
  ASSERT_EQ(*streams->Read(1, {&byte, 1}), 0u);
  std::vector<pollfd> waits;
  streams->AddWaits(1, true, false, waits);
  ASSERT_FALSE(waits.empty());
  world.exchanges[0]->Wake();
  EXPECT_GE(poll(waits.data(), waits.size(), kPatience), 1);
}

TEST(UcxMessage, TokensDependOnAllThatTheyProve) {
  const TokenOf of{.secret = tcp::kTestSecret, .job_id = "job", .epoch = 1, .sender = 0, .receiver = 1};
  TokenOf changed[] = {of, of, of, of, of, of};
  changed[0].secret = "another secret of some length";
  changed[1].job_id = "other";
  changed[2].epoch = 2;
  changed[3].sender = 2;
  changed[4].receiver = 2;
  changed[5].nonce[15] = std::byte{1};
  const Message message{.kind = Kind::kEnd, .sender = 5, .channel = uint64_t{1} << 63, .number = 77};
  const Header header = Encode(*MakeToken(of), message);
  EXPECT_TRUE(HasToken(header, *MakeToken(of)));
  EXPECT_EQ(*DecodeMessage(header), message);
  for (const TokenOf& other : changed) EXPECT_FALSE(HasToken(header, *MakeToken(other)));
}

}  // namespace
}  // namespace gyre::ucx
