// Who is silent, and who is only not listened to, starved, or in the middle of something long.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "memory_disk.h"
#include "ps/server.h"
#include "ps/worker.h"
#include "support/status_matchers.h"

namespace gyre::ps {
namespace {

using std::chrono::milliseconds;
using support::IsOk;

// Keeps what was sent, without what it points at.
class Sent final : public Network {
 public:
  void Send(int peer, const Message& message) override { all.push_back({peer, message.kind, message.slot}); }
  int64_t Count(Kind kind) const {
    return std::ranges::count_if(all, [kind](const One& one) { return one.kind == kind; });
  }
  struct One {
    int peer;
    Kind kind;
    uint32_t slot;
  };
  std::vector<One> all;
};

struct Zero final : Random {
  uint64_t Next() override { return 0; }
};

Layout FourParts() {
  const std::vector<Tensor> tensors = {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}};
  return *Layout::Create(tensors, 1);
}

class ServerSilenceTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const int worker : {0, 1}) {
      server_->Receive(worker, Hello());
      ASSERT_TRUE(server_->roster().IsMember(worker));
    }
    server_->Tick();
  }

  Message Hello() const {
    return {.kind = Kind::kHello,
            .incarnation = 1,
            .layout = layout_.fingerprint(),
            .flag = true,
            .next = std::vector<uint64_t>(4)};
  }
  static Message Beat() { return {.kind = Kind::kHeartbeat, .incarnation = 1, .next = std::vector<uint64_t>(4)}; }

  // So many turns, which take so long each, with words of worker 0 alone; until worker 1 is given up.
  int TurnsUntilGivenUp(int most, milliseconds each) {
    for (int turn = 1; turn <= most; ++turn) {
      clock_.Advance(each);
      server_->Receive(0, Beat());
      server_->Tick();
      EXPECT_TRUE(server_->roster().IsMember(0));
      if (!server_->roster().IsMember(1)) return turn;
    }
    return 0;
  }

  ManualClock clock_;
  Layout layout_ = FourParts();
  Sent network_;
  MemoryDisk disk_;
  std::unique_ptr<Server> server_ = *Server::Start({.workers = 2}, layout_, clock_, network_, disk_);
};

TEST_F(ServerSilenceTest, IsOneSecondOfListening) {
  EXPECT_EQ(TurnsUntilGivenUp(20, milliseconds(100)), 10);
}

// While a server works through what one worker has sent, another one's words lie unread: one turn, however long.
TEST_F(ServerSilenceTest, IsNotWhatLiesUnread) {
  for (int message = 0; message < 40; ++message) {
    clock_.Advance(milliseconds(100));
    server_->Receive(0, Beat());
  }
  server_->Tick();
  EXPECT_TRUE(server_->roster().IsMember(1));
  EXPECT_EQ(TurnsUntilGivenUp(20, milliseconds(1500)), 9);  // and that turn
}

TEST_F(ServerSilenceTest, OfAServerThatStoodStillDoesNotMakeItsWorkersYoung) {
  clock_.Advance(milliseconds(60'000));
  server_->Receive(1, Beat());  // which waited for it
  server_->Tick();
  EXPECT_EQ(TurnsUntilGivenUp(20, milliseconds(100)), 10);
}

TEST_F(ServerSilenceTest, IsNotThatOfAProcessKnownToLive) {
  for (int turn = 0; turn < 30; ++turn) {
    clock_.Advance(milliseconds(100));
    server_->Hear(1, 1);
    server_->Tick();
  }
  EXPECT_TRUE(server_->roster().IsMember(1));
  EXPECT_FALSE(server_->roster().IsMember(0));
  server_->Hear(0, 1);  // that alone brings nobody back
  EXPECT_FALSE(server_->roster().IsMember(0));
}

TEST_F(ServerSilenceTest, IsShortOnceTheConnectionHasEnded) {
  server_->Lose(1, 1);
  EXPECT_EQ(TurnsUntilGivenUp(20, milliseconds(100)), 2);
}

TEST_F(ServerSilenceTest, AConnectionThatIsMadeAgainOrWasAnOlderLifesIsNoEnd) {
  server_->Lose(1, 1);
  server_->Receive(1, Hello());
  EXPECT_EQ(TurnsUntilGivenUp(20, milliseconds(100)), 10);
  Message anew = Hello();
  anew.incarnation = 2;
  server_->Receive(1, anew);
  server_->Lose(1, 1);
  EXPECT_EQ(TurnsUntilGivenUp(20, milliseconds(100)), 10);
}

// A worker at a server that has taken it. To make memory for a push takes `cost_`.
class WorkerSilenceTest : public testing::Test {
 protected:
  void SetUp() override {
    Tell({.kind = Kind::kWelcome, .flag = true, .next = Zeros(), .durable = Zeros(), .floors = Zeros()});
    Tell(
        {.kind = Kind::kWelcome, .flag = true, .member = true, .next = Zeros(), .durable = Zeros(), .floors = Zeros()});
    Values(0);
    ASSERT_THAT(worker_->Begin(), IsOk());
    network_.all.clear();
  }

  static std::vector<uint64_t> Zeros() { return std::vector<uint64_t>(4); }
  void Tell(Message message) {
    message.incarnation = message.to = 1;
    worker_->Receive(0, message);
  }
  void Values(uint64_t clock) {
    static constexpr float kOne = 1;
    for (uint32_t slot = 0; slot < 4; ++slot) {
      Tell({.kind = Kind::kValues, .slot = slot, .clock = clock, .values = std::as_bytes(std::span(&kOne, 1))});
    }
  }

  ManualClock clock_;
  milliseconds cost_{0};
  Layout layout_ = FourParts();
  Sent network_;
  Zero random_;
  std::unique_ptr<Worker> worker_ = *Worker::Create({.rule = std::nullopt,
                                                     .local_steps = 1,
                                                     .make =
                                                         [this](int, size_t count) {
                                                           clock_.Advance(cost_);
                                                           return Floats(count);
                                                         }},
                                                    layout_, std::vector<float>(4), clock_, network_, random_);
};

// The end of a step that takes two seconds: the server hears from this worker in between, gets all of it, and is not
// taken for away, although nobody could listen to it.
TEST_F(WorkerSilenceTest, IsNotALongEndOfAStep) {
  cost_ = milliseconds(500);
  ASSERT_THAT(worker_->End(std::vector<float>(4, 7.0f)), IsOk());
  EXPECT_EQ(network_.Count(Kind::kPush), 4);
  EXPECT_EQ(network_.Count(Kind::kPull), 4);
  EXPECT_EQ(network_.Count(Kind::kHeartbeat), 3);
  worker_->Tick();
  EXPECT_TRUE(worker_->WhyWaiting());  // for values: no step without the server
  Values(1);
  EXPECT_FALSE(worker_->WhyWaiting());
  EXPECT_EQ(worker_->model()[0], 1);  // the server's
}

TEST_F(WorkerSilenceTest, IsNotALongRowOfMessages) {
  for (int message = 0; message < 20; ++message) {
    clock_.Advance(milliseconds(50));
    Tell({.kind = Kind::kAck, .sequence = 0});
  }
  EXPECT_EQ(network_.Count(Kind::kHeartbeat), 10);
}

TEST_F(WorkerSilenceTest, OfTheServerIsOneSecondOfListening) {
  ASSERT_THAT(worker_->End(std::vector<float>(4, 7.0f)), IsOk());
  int turns = 0;
  for (; worker_->WhyWaiting() && turns < 20; ++turns) {
    clock_.Advance(milliseconds(100));
    worker_->Tick();
  }
  EXPECT_EQ(turns, 10);  // then it goes on alone
}

// Of a server that waits for other workers, as it says to each hello: the model is large.
TEST_F(WorkerSilenceTest, OfAServerThatWaitsDoesNotBringTheFirstValuesEachTime) {
  const Message waits{.kind = Kind::kWelcome, .member = true, .next = Zeros(), .durable = Zeros(), .floors = Zeros()};
  for (int turn = 0; turn < 32; ++turn) {
    Tell(waits);
    clock_.Advance(milliseconds(250));
  }
  EXPECT_EQ(network_.Count(Kind::kInit), 4 * 5);  // at 0, 0.5, 1.5, 3.5 and 7.5 s: what is lost comes again
  worker_->Reach(0);                              // by another way
  Tell(waits);
  EXPECT_EQ(network_.Count(Kind::kInit), 4 * 6);
  Tell({.kind = Kind::kUnknown});  // it had given the worker up, and turned some of them away
  Tell(waits);
  EXPECT_EQ(network_.Count(Kind::kInit), 4 * 7);
}

TEST_F(WorkerSilenceTest, IsAnsweredByOneHelloHoweverMuchWasUnderWay) {
  ASSERT_THAT(worker_->End(std::vector<float>(4, 7.0f)), IsOk());
  for (int message = 0; message < 8; ++message) Tell({.kind = Kind::kUnknown});  // the pushes and pulls
  EXPECT_EQ(network_.Count(Kind::kHello), 1);
  clock_.Advance(milliseconds(500));  // that one may be lost
  worker_->Tick();
  EXPECT_EQ(network_.Count(Kind::kHello), 2);
}

TEST_F(WorkerSilenceTest, OfTheServerIsNotAMessageThatTakesLong) {
  ASSERT_THAT(worker_->End(std::vector<float>(4, 7.0f)), IsOk());
  for (int turn = 0; turn < 30; ++turn) {
    clock_.Advance(milliseconds(100));
    worker_->Hear(0, 1);
    worker_->Tick();
  }
  EXPECT_EQ(worker_->WhyWaiting()->reason, Waiting::Reason::kOthers);
}

}  // namespace
}  // namespace gyre::ps
