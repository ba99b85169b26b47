#include "bootstrap/store_state.h"

#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using absl::StatusCode;

// Three ranks (connections 1 to 3) and a launcher (9) under a clock of the test's.
class StoreStateTest : public testing::Test {
 protected:
  StoreStateTest() {
    for (uint64_t id = 1; id <= 3; ++id) Connect(id, static_cast<int>(id) - 1);
    state_->Connected(9, {"job", 7, -1, Role::kLauncher});
  }

  void Connect(uint64_t id, int rank, uint32_t process = 0) {
    state_->Connected(id, {"job", 7, rank, Role::kRank});
    Send(id, {.kind = StoreMessage::kJoin, .size = 3, .process = process});
    EXPECT_EQ(Taken(id).code, StatusCode::kOk);
  }

  void Send(uint64_t id, const StoreRequest& request) {
    state_->Handle(id, {{static_cast<uint16_t>(request.kind), 0, 7, ++sequence_}, EncodeRequest(request)}, now_);
    for (StoreState::Reply& reply : state_->TakeReplies()) replies_.emplace(reply.to, reply);
  }
  void Gather(uint64_t id, std::string_view name, std::string_view value, uint32_t timeout_ms = 1000) {
    Send(id, {.kind = StoreMessage::kGather, .key = name, .value = value, .timeout_ms = timeout_ms});
  }
  void Get(uint64_t id, std::string_view key) {
    Send(id, {.kind = StoreMessage::kGet, .key = key, .timeout_ms = 1000});
  }
  void Set(uint64_t id, std::string_view key, std::string_view value) {
    Send(id, {.kind = StoreMessage::kSet, .key = key, .value = value});
  }
  void Pass(int ms) {
    now_ += std::chrono::milliseconds(ms);
    state_->Expire(now_);
    for (StoreState::Reply& reply : state_->TakeReplies()) replies_.emplace(reply.to, reply);
  }
  void Disconnect(uint64_t id) {
    state_->Disconnected(id);
    Pass(0);
  }

  bool Waits(uint64_t id) const { return !replies_.contains(id); }
  // The reply that came for this connection, which must be there.
  StoreState::Reply Taken(uint64_t id) {
    const auto found = replies_.find(id);
    if (found == replies_.end()) {
      ADD_FAILURE() << "no reply for " << id;
      return {id, 0, StatusCode::kUnknown, ""};
    }
    StoreState::Reply reply = found->second;
    replies_.erase(found);
    return reply;
  }
  void ExpectError(uint64_t id, StatusCode code, const std::string& text) {
    const StoreState::Reply reply = Taken(id);
    EXPECT_EQ(reply.code, code) << reply.payload;
    EXPECT_NE(reply.payload.find(text), std::string::npos) << reply.payload;
  }

  TimePoint now_ = TimePoint(std::chrono::hours(1));
  std::unique_ptr<StoreState> state_ = std::make_unique<StoreState>(3, 7);
  uint32_t sequence_ = 0;
  std::multimap<uint64_t, StoreState::Reply> replies_;
};

TEST_F(StoreStateTest, GetWaitsForSet) {
  Get(1, "key");
  Get(2, "other");
  EXPECT_TRUE(Waits(1));
  Set(9, "key", "value");
  EXPECT_EQ(Taken(9).code, StatusCode::kOk);
  EXPECT_EQ(Taken(1).payload, "value");
  EXPECT_TRUE(Waits(2));
  Get(3, "key");
  EXPECT_EQ(Taken(3).payload, "value");
  Pass(1000);
  ExpectError(2, StatusCode::kDeadlineExceeded, "\"other\" was not set within 1 s");
}

TEST_F(StoreStateTest, AddCounts) {
  const auto add = [&](uint64_t id, std::string_view key, int64_t amount) {
    Send(id, {.kind = StoreMessage::kAdd, .key = key, .amount = amount});
    return Taken(id);
  };
  EXPECT_EQ(add(1, "n", 5).payload, "5");
  EXPECT_EQ(add(2, "n", -7).payload, "-2");
  Set(1, "text", "five");
  Taken(1);
  EXPECT_EQ(add(1, "text", 1).code, StatusCode::kFailedPrecondition);
  EXPECT_EQ(add(1, "n", INT64_MIN).code, StatusCode::kOutOfRange);
}

TEST_F(StoreStateTest, GatherGivesAllToAllInRankOrder) {
  Gather(3, "g", "c");
  Gather(1, "g", "a");
  EXPECT_TRUE(Waits(1));
  Gather(2, "g", "");
  for (uint64_t id = 1; id <= 3; ++id) {
    EXPECT_EQ(*DecodeValues(Taken(id).payload), (std::vector<std::string>{"a", "", "c"}));
  }
  EXPECT_EQ(state_->stored_bytes(), 0u);  // nothing is kept
  Gather(1, "g", "again");
  EXPECT_TRUE(Waits(1));
}

TEST_F(StoreStateTest, GatherNamesWhoDidNotCome) {
  Gather(2, "g", "b", 60'000);
  Pass(59'700);
  EXPECT_TRUE(Waits(2));
  Pass(150);  // a little before the client's own deadline
  ExpectError(2, StatusCode::kDeadlineExceeded, "\"g\": ranks 0, 2 of 3 did not come within 60 s");
  EXPECT_EQ(state_->NextExpiry(), TimePoint::max());
}

TEST_F(StoreStateTest, RanksThatBeganTogetherEndTogether) {
  Gather(1, "g", "a", 60'000);
  Pass(3'000);
  Gather(2, "g", "b", 60'000);
  Pass(56'900);
  ExpectError(1, StatusCode::kDeadlineExceeded, "rank 2 of 3 did not come");
  ExpectError(2, StatusCode::kDeadlineExceeded, "rank 2 of 3 did not come");
}

TEST_F(StoreStateTest, WhoGaveUpMayComeAgain) {
  Gather(1, "g", "old");
  Pass(1000);
  ExpectError(1, StatusCode::kDeadlineExceeded, "ranks 1, 2");
  Gather(2, "g", "b");
  Gather(1, "g", "new");
  Gather(3, "g", "c");
  EXPECT_EQ(*DecodeValues(Taken(1).payload), (std::vector<std::string>{"new", "b", "c"}));
}

TEST_F(StoreStateTest, AResultWaitsForWhoGaveUp) {
  Gather(1, "g", "a", 100);
  Pass(100);
  Taken(1);
  Gather(2, "g", "b");
  Gather(3, "g", "c");
  EXPECT_EQ(Taken(2).code, StatusCode::kOk);
  EXPECT_EQ(Taken(3).code, StatusCode::kOk);
  Gather(2, "g", "b2");
  ExpectError(2, StatusCode::kFailedPrecondition, "begun again");
  Gather(1, "g", "late");
  EXPECT_EQ(*DecodeValues(Taken(1).payload), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(state_->stored_bytes(), 0u);
}

TEST_F(StoreStateTest, ALostRankIsToldToWhoeverWaitsAndWhoeverComes) {
  Gather(1, "g", "a");
  Gather(2, "g", "b");
  Disconnect(2);
  ExpectError(1, StatusCode::kUnavailable, "rank 1 left or was lost; rank 2 of 3 did not come");
  Gather(3, "g", "c");
  ExpectError(3, StatusCode::kUnavailable, "rank 1");
  Gather(1, "another", "a");
  ExpectError(1, StatusCode::kUnavailable, "rank 1");
  EXPECT_EQ(state_->stored_bytes(), 0u);
}

TEST_F(StoreStateTest, WhoLeavesAfterItsLastGatherHarmsNobody) {
  Gather(1, "g", "a", 100);
  Pass(100);
  Taken(1);
  Gather(2, "g", "b");
  Gather(3, "g", "c");
  Disconnect(2);
  Disconnect(3);
  Gather(1, "g", "a");  // gave up before, comes again: the result is still there
  EXPECT_EQ(*DecodeValues(Taken(1).payload), (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(StoreStateTest, InstancesDoNotMix) {
  // Rank 0 and 1 have begun a second runtime while rank 2 is still in its first.
  Connect(11, 0);
  Connect(12, 1);
  Gather(11, "g", "a2");
  Gather(12, "g", "b2");
  Gather(1, "g", "a1");
  Disconnect(2);  // rank 1 leaves the first
  ExpectError(1, StatusCode::kUnavailable, "rank 1");
  EXPECT_TRUE(Waits(11));
  Connect(13, 2);
  Gather(13, "g", "c2");
  EXPECT_EQ(*DecodeValues(Taken(11).payload), (std::vector<std::string>{"a2", "b2", "c2"}));
}

TEST_F(StoreStateTest, OnlyThisJobsRanksJoin) {
  state_->Connected(20, {"job", 7, 3, Role::kRank});
  Send(20, {.kind = StoreMessage::kJoin, .size = 3});
  ExpectError(20, StatusCode::kFailedPrecondition, "rank 3 of 3");
  state_->Connected(21, {"job", 7, -1, Role::kRank});
  Send(21, {.kind = StoreMessage::kJoin, .size = 3});
  ExpectError(21, StatusCode::kFailedPrecondition, "rank -1");
  state_->Connected(22, {"job", 7, 0, Role::kRank});
  Send(22, {.kind = StoreMessage::kJoin, .size = 4});
  ExpectError(22, StatusCode::kFailedPrecondition, "a job of 3 ranks");
  Send(9, {.kind = StoreMessage::kJoin, .size = 3});
  ExpectError(9, StatusCode::kFailedPrecondition, "only ranks");
  Gather(9, "g", "x");
  ExpectError(9, StatusCode::kFailedPrecondition, "joined");
}

TEST_F(StoreStateTest, ARankThatTwoProcessesClaimIsRefused) {
  state_->Connected(20, {"job", 7, 1, Role::kRank});
  Send(20, {.kind = StoreMessage::kJoin, .size = 3, .process = 4711});
  ExpectError(20, StatusCode::kFailedPrecondition, "rank 1 is taken by process 0; process 4711 wants it too");
}

// Ranks of a job whose launcher starts those that die again.
class StoreOfLivesTest : public StoreStateTest {
 protected:
  StoreOfLivesTest() {
    state_ = std::make_unique<StoreState>(3, 7, /*ranks_return=*/true);
    for (uint64_t id = 1; id <= 2; ++id) Connect(id, static_cast<int>(id) - 1);
  }
  void Join(uint64_t id, int rank, uint64_t life) {
    state_->Connected(id, {"job", 7, rank, Role::kRank});
    Send(id, {.kind = StoreMessage::kJoin, .size = 3, .process = static_cast<uint32_t>(id), .life = life});
  }
  void ExpectAll(uint64_t id) {
    EXPECT_EQ(*DecodeValues(Taken(id).payload), (std::vector<std::string>{"a", "b", "c"}));
  }
};

TEST_F(StoreOfLivesTest, WhoDiedBeforeItJoinedHasItsPlaceInTheNextLife) {
  Gather(1, "join", "a");
  Gather(2, "join", "b");
  Join(13, 2, 2);
  EXPECT_EQ(Taken(13).code, StatusCode::kOk);
  Gather(13, "join", "c");
  for (const uint64_t id : {1, 2, 13}) ExpectAll(id);
  EXPECT_EQ(state_->stored_bytes(), 0u);
  // Its second runtime is like anybody's.
  Join(23, 2, 2);
  ExpectError(23, StatusCode::kFailedPrecondition, "is taken by process 13");
  Disconnect(13);
  Join(24, 2, 2);
  EXPECT_EQ(Taken(24).code, StatusCode::kOk);
}

TEST_F(StoreOfLivesTest, WhoDiesWhileItWaitsForTheOthersIsWaitedFor) {
  Gather(1, "join", "a");
  Gather(2, "join", "lost");
  Disconnect(2);
  EXPECT_TRUE(Waits(1));
  Connect(3, 2);
  Gather(3, "join", "c");
  Pass(100);
  EXPECT_TRUE(Waits(1) && Waits(3));
  Join(12, 1, 2);
  EXPECT_EQ(Taken(12).code, StatusCode::kOk);
  Gather(12, "join", "b");
  for (const uint64_t id : {1, 3, 12}) ExpectAll(id);
  EXPECT_EQ(state_->stored_bytes(), 0u);
}

TEST_F(StoreOfLivesTest, AllMayDieBeforeTheyMeet) {
  Gather(1, "join", "lost");
  Gather(2, "join", "lost");
  Disconnect(2);
  Disconnect(1);
  EXPECT_EQ(state_->stored_bytes(), 0u);
  Connect(3, 2);
  Gather(3, "join", "c");
  Join(11, 0, 2);
  Join(12, 1, 3);
  EXPECT_EQ(Taken(11).code, StatusCode::kOk);
  EXPECT_EQ(Taken(12).code, StatusCode::kOk);
  Gather(11, "join", "a");
  Gather(12, "join", "b");
  for (const uint64_t id : {3, 11, 12}) ExpectAll(id);
}

// Something that the dead process began may hold its connection open.
TEST_F(StoreOfLivesTest, ALaterLifeTakesThePlaceOfAnEarlierOne) {
  Gather(2, "join", "lost");
  Join(12, 1, 2);
  EXPECT_EQ(Taken(12).code, StatusCode::kOk);
  EXPECT_TRUE(Waits(2));
  Join(22, 1, 1);
  ExpectError(22, StatusCode::kFailedPrecondition, "rank 1 is in its life 2; life 1 wants to join");
  Connect(3, 2);
  Gather(1, "join", "a");
  Gather(12, "join", "b");
  Gather(3, "join", "c");
  for (const uint64_t id : {1, 3, 12}) ExpectAll(id);
  EXPECT_TRUE(Waits(2));
}

TEST_F(StoreOfLivesTest, OnceTheyHaveMetALaterLifeComesTooLate) {
  Connect(3, 2);
  Gather(1, "join", "a");
  Gather(2, "join", "b");
  Gather(3, "join", "c");
  for (const uint64_t id : {1, 2, 3}) ExpectAll(id);
  Gather(1, "places", "a");
  Join(12, 1, 2);
  ExpectError(12, StatusCode::kAlreadyExists, "have met without life 2");
  EXPECT_TRUE(Waits(1));
  Disconnect(2);  // and its end is told as ever
  ExpectError(1, StatusCode::kUnavailable, "rank 1 left or was lost");
}

TEST_F(StoreStateTest, OldEpochsAreRefused) {
  state_->Handle(1, {{static_cast<uint16_t>(StoreMessage::kSet), 0, 6, 1}, ""}, now_);
  Pass(0);
  ExpectError(1, StatusCode::kAborted, "epoch 7, not 6");
}

TEST_F(StoreStateTest, MalformedRequestsGetAnAnswer) {
  for (uint16_t type = 0; type < 10; ++type) {
    for (const std::string& payload :
         {std::string(), std::string(3, '\0'), std::string(9, '\xff'), std::string(100, 'x')}) {
      state_->Handle(1, {{type, 0, 7, 1}, payload}, now_);
      Pass(0);
      ExpectError(1, StatusCode::kInvalidArgument, "");
    }
  }
  Set(1, "", "x");
  ExpectError(1, StatusCode::kInvalidArgument, "key");
  Set(1, std::string(1025, 'k'), "x");
  ExpectError(1, StatusCode::kInvalidArgument, "1024");
  Set(1, "k", std::string((1 << 20) + 1, 'v'));
  ExpectError(1, StatusCode::kInvalidArgument, "1048576");
}

TEST_F(StoreStateTest, WhatIsStoredIsBounded) {
  const std::string big(1 << 20, 'v');
  int stored = 0;
  for (;; ++stored) {
    Set(1, "key " + std::to_string(stored), big);
    const StoreState::Reply reply = Taken(1);
    if (reply.code == StatusCode::kOk) continue;
    EXPECT_EQ(reply.code, StatusCode::kResourceExhausted);
    break;
  }
  EXPECT_EQ(stored, 255);
  EXPECT_LE(state_->stored_bytes(), kMaxStoredBytes);
  Set(1, "key 0", "small");  // makes room
  Taken(1);
  Set(1, "one more", big);
  EXPECT_EQ(Taken(1).code, StatusCode::kOk);
}

TEST_F(StoreStateTest, AGathersValuesMustFitIntoOneReply) {
  constexpr uint64_t kSize = 20;
  StoreState large(kSize, 7);
  const auto send = [&](uint64_t id, const StoreRequest& request) {
    large.Handle(id, {{static_cast<uint16_t>(request.kind), 0, 7, 1}, EncodeRequest(request)}, now_);
  };
  for (uint64_t id = 1; id <= kSize; ++id) {
    large.Connected(id, {"job", 7, static_cast<int>(id) - 1, Role::kRank});
    send(id, {.kind = StoreMessage::kJoin, .size = kSize});
  }
  large.TakeReplies();
  const size_t before = large.stored_bytes();
  const std::string value(1 << 20, 'v');
  std::map<uint64_t, StoreState::Reply> replies;
  for (uint64_t id = 1; id <= kSize; ++id) {
    send(id, {.kind = StoreMessage::kGather, .key = "g", .value = value, .timeout_ms = 1000});
    for (const auto& reply : large.TakeReplies()) replies.emplace(reply.to, reply);
    // The 16th is one too many: who waits is told, and who comes later.
    EXPECT_EQ(replies.size(), id < 16 ? 0 : id);
  }
  for (const auto& [id, reply] : replies) {
    EXPECT_EQ(reply.code, StatusCode::kResourceExhausted) << id;
    EXPECT_NE(reply.payload.find("together are over 16 MiB"), std::string::npos) << reply.payload;
  }
  EXPECT_EQ(large.stored_bytes(), before);
  EXPECT_EQ(large.NextExpiry(), TimePoint::max());
  // The name may be used again.
  for (uint64_t id = 1; id <= kSize; ++id) send(id, {.kind = StoreMessage::kGather, .key = "g", .timeout_ms = 1000});
  for (const auto& reply : large.TakeReplies()) EXPECT_EQ(reply.code, StatusCode::kOk);
}

TEST_F(StoreStateTest, AGatherThatFailedIsOverForARankThatLeft) {
  const std::string value(1 << 20, 'v');
  for (int i = 0; i < 255; ++i) {
    Set(9, absl::StrCat("key", i), value);
    EXPECT_EQ(Taken(9).code, StatusCode::kOk);
  }
  Gather(1, "g", "");
  Gather(2, "g", value);
  ExpectError(1, StatusCode::kResourceExhausted, "full");
  ExpectError(2, StatusCode::kResourceExhausted, "full");
  const size_t bytes = state_->stored_bytes();
  Disconnect(3);
  EXPECT_LT(state_->stored_bytes(), bytes);
}

TEST_F(StoreStateTest, CloseEndsAllWaits) {
  Gather(1, "g", "a");
  Get(2, "k");
  state_->Close();
  Pass(0);
  ExpectError(1, StatusCode::kCancelled, "closed by the rank that served it; ranks 1, 2 of 3 did not come");
  ExpectError(2, StatusCode::kCancelled, "closed");
}

}  // namespace
}  // namespace gyre
