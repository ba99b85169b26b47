#include "transport/tcp/switchboard.h"

#include "transport/tcp/hub_fixture.h"

namespace gyre::tcp {
namespace {

class SwitchboardTest : public testing::Test {
 protected:
  void SetUp() override { board_.SetPeers({{0, AddressOf(0, Loopback(1))}, {2, AddressOf(2, Loopback(2))}}); }

  Switchboard board_{1};
};

TEST_F(SwitchboardTest, TooManyThatWaitPushOutTheOldest) {
  for (uint64_t channel = 0; channel < 4096; ++channel) EXPECT_FALSE(board_.Deliver(channel, 0, UniqueFd()));
  EXPECT_NE(board_.Take(0, 0), nullptr);
  EXPECT_FALSE(board_.Deliver(5000, 2, UniqueFd()));
  EXPECT_TRUE(board_.Deliver(5001, 2, UniqueFd()));
  EXPECT_EQ(board_.Take(1, 0), nullptr);
  EXPECT_NE(board_.Take(2, 0), nullptr);
  EXPECT_NE(board_.Take(5001, 2), nullptr);
}

TEST_F(SwitchboardTest, APeerEndsOnce) {
  EXPECT_TRUE(board_.End(0, Fate::kLost, "rank 0 was lost"));
  EXPECT_FALSE(board_.End(0, Fate::kLeft, "rank 0 has left"));
  EXPECT_THAT(board_.WhyNoConnection(0), MatchesStatus(StatusCode::kUnavailable, "rank 0 was lost"));
  EXPECT_THAT(board_.WhyNoConnection(2), IsOk());
  EXPECT_THAT(board_.Lost(), testing::ElementsAre(testing::Pair(0, "rank 0 was lost")));
}

TEST_F(SwitchboardTest, WhatALostPeerSentIsDropped) {
  board_.Deliver(1, 0, UniqueFd());
  board_.End(0, Fate::kLost, "lost");
  EXPECT_EQ(board_.Take(1, 0), nullptr);
  board_.Deliver(2, 0, UniqueFd());
  EXPECT_EQ(board_.Take(2, 0), nullptr);
}

TEST_F(SwitchboardTest, OfAPeerThatLeftWhatStillArrivesIsWaitedFor) {
  board_.SetArriving(0, 1);
  board_.End(0, Fate::kLeft, "rank 0 has left");
  EXPECT_THAT(board_.WhyNoConnection(0), IsOk());
  board_.Deliver(1, 0, UniqueFd());
  board_.SetArriving(0, 0);
  EXPECT_NE(board_.Take(1, 0), nullptr);
  EXPECT_THAT(board_.WhyNoConnection(0), MatchesStatus(StatusCode::kUnavailable, "rank 0 has left"));
}

TEST_F(SwitchboardTest, ManyMissingAreCounted) {
  std::map<int, PeerAddress> peers;
  std::vector<int> ranks;
  for (int rank = 10; rank < 30; ++rank) {
    peers[rank] = AddressOf(rank, Loopback(1));
    ranks.push_back(rank);
  }
  board_.SetPeers(peers);
  board_.SetUp(10);
  const absl::Status status = board_.WaitUntilUp(ranks, In(0));
  EXPECT_THAT(status, MatchesStatus(StatusCode::kDeadlineExceeded, "rank 11 on host h11"));
  EXPECT_THAT(status, MatchesStatus(StatusCode::kDeadlineExceeded, "and 11 more"));
}

}  // namespace
}  // namespace gyre::tcp
