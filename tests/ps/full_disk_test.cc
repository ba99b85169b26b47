// A server whose disk is full: training goes on without snapshots, as far as that can be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "memory_disk.h"
#include "ps/server.h"
#include "support/status_matchers.h"

namespace gyre::ps {
namespace {

using std::chrono::milliseconds;
using support::IsOk;
using support::MatchesStatus;

constexpr auto kFull = absl::StatusCode::kResourceExhausted;

// What a server says to its one worker.
class Answers final : public Network {
 public:
  void Send(int, const Message& message) override {
    last[message.kind] = message.flag;
    if (message.kind == Kind::kRefuse) refusal = std::string(message.text);
  }
  std::map<Kind, bool> last;  // by kind: its flag
  std::string refusal;
};

class FullDiskTest : public testing::Test {
 protected:
  std::unique_ptr<Server> Start(uint64_t incarnation) {
    answers_ = {};
    auto server = Server::Start({.incarnation = incarnation}, layout_, clock_, answers_, disk_);
    EXPECT_THAT(server, IsOk());
    return server.ok() ? *std::move(server) : nullptr;
  }

  void Hello(Server& server, bool has_had_values) const {
    server.Receive(0, {.kind = Kind::kHello,
                       .incarnation = 1,
                       .layout = layout_.fingerprint(),
                       .flag = true,
                       .member = has_had_values,
                       .next = {0}});
  }
  static void Init(Server& server) {
    const float first[] = {1, 2};
    server.Receive(0, {.kind = Kind::kInit, .incarnation = 1, .values = std::as_bytes(std::span(first))});
  }

  ManualClock clock_;
  Layout layout_ = *Layout::Create(std::vector<Tensor>{{"a", 2}}, 1);
  Answers answers_;
  MemoryDisk disk_;
};

TEST_F(FullDiskTest, TrainingBeginsWithoutAFirstSnapshot) {
  const auto server = Start(1);
  disk_.SetFull(true);
  Hello(*server, false);
  EXPECT_FALSE(answers_.last[Kind::kWelcome]);
  Init(*server);
  EXPECT_THAT(server->disk_status(), MatchesStatus(kFull, "no space left"));
  EXPECT_TRUE(answers_.last[Kind::kWelcome]) << "pushes are taken";
  server->Receive(0, {.kind = Kind::kPull, .incarnation = 1});
  EXPECT_TRUE(answers_.last.contains(Kind::kValues));
  // Later there is room.
  disk_.SetFull(false);
  clock_.Advance(milliseconds(1000));
  server->Tick();
  EXPECT_THAT(server->disk_status(), IsOk());
  EXPECT_GT(server->snapshot_number(), 0u);
}

TEST_F(FullDiskTest, AServerThatStartsAnewGoesOnFromItsSnapshot) {
  auto server = Start(1);
  Hello(*server, false);
  Init(*server);
  ASSERT_EQ(server->snapshot_number(), 1u);
  disk_.SetFull(true);
  server = Start(2);
  ASSERT_NE(server, nullptr);
  EXPECT_THAT(server->disk_status(), MatchesStatus(kFull, "no space left"));
  Hello(*server, true);
  EXPECT_TRUE(answers_.last[Kind::kWelcome]);
  EXPECT_EQ(server->shard(0).values()[1], 2);
}

TEST_F(FullDiskTest, AServerThatHasLostItsValuesRefusesWhoHadThem) {
  disk_.SetFull(true);
  auto server = Start(1);
  Hello(*server, false);
  Init(*server);
  server = Start(2);
  Hello(*server, true);
  EXPECT_THAT(answers_.refusal, testing::HasSubstr("no snapshot of them was written (the disk: "));
  EXPECT_FALSE(server->roster().IsMember(0));
  answers_ = {};
  Hello(*server, false);  // another process of that worker: other servers may be at a later step
  EXPECT_TRUE(answers_.last.contains(Kind::kRefuse));
  server = Start(3);
  Hello(*server, false);  // nobody has lost anything: all begins
  Init(*server);
  EXPECT_TRUE(answers_.last[Kind::kWelcome]);
}

}  // namespace
}  // namespace gyre::ps
