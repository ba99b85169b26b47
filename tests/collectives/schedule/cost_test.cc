// Bytes, messages and rounds of every algorithm, against formulas written down apart.
#include "collectives/schedule/cost.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "collectives/schedule/algorithms.h"
#include "collectives/schedule/expand.h"
#include "collectives/schedule/steps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using support::IsOk;
using testing::Each;
using testing::HasSubstr;

Algorithm Named(const std::string& name) {
  for (const Algorithm& algorithm : AllAlgorithms()) {
    if (algorithm.name == name) return algorithm;
  }
  ADD_FAILURE() << "no algorithm " << name;
  return {};
}

// With blocks of `block_bytes` each.
Cost CostOf(const std::string& name, int size, int64_t block_bytes, int root = 0) {
  const std::vector<Schedule> programs = ProgramsOf(Named(name), size, root);
  const auto cost = CountCost(programs, std::vector(static_cast<size_t>(programs[0].blocks), block_bytes));
  EXPECT_THAT(cost, IsOk());
  return cost.ok() ? *cost : Cost{};
}

int64_t Sum(const std::vector<int64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

int Log2(int power) {
  return std::countr_zero(static_cast<unsigned>(power));
}
int CeilLog2(int size) {
  return Log2(static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))));
}
int FloorPower(int size) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
}

// ceil(log2 p) messages after each other, but one less up to three quarters of a power of two: there too little is left
// for the last round that had to wait for all rounds before.
int RoundsOfJumps(int size) {
  if (size == 1) return 0;
  return 4 * size > 3 << CeilLog2(size) ? CeilLog2(size) : CeilLog2(size) - 1;
}

// The most jumps on the way from 0 to any place below `size`, if each is the longest that fits of `size` halved,
// rounded up, halved again, and so on.
int MostHalvingJumps(int size) {
  int most = 0;
  for (int place = 0; place < size; ++place) {
    int jumps = 0;
    for (int left = place, jump = size; jump > 1;) {
      jump = (jump + 1) / 2;
      if (left < jump) continue;
      left -= jump;
      ++jumps;
    }
    most = std::max(most, jumps);
  }
  return most;
}

TEST(Cost, RingAllReduceSendsTwoTimesAllButOnePart) {
  for (int p = 1; p <= 64; ++p) {
    const Cost cost = CostOf("RingAllReduce", p, 1000);  // S = 1000 p
    EXPECT_EQ(cost.rounds, 2 * (p - 1));
    EXPECT_EQ(cost.messages, 2 * (p - 1) * p);
    EXPECT_THAT(cost.sent, Each(2 * (p - 1) * 1000)) << p;
    EXPECT_THAT(cost.received, Each(2 * (p - 1) * 1000)) << p;
  }
}

TEST(Cost, HalfOfAnAllReduceRingIsHalfOfIt) {
  for (const char* const name : {"RingReduceScatter", "RingAllGather"}) {
    for (int p = 1; p <= 64; ++p) {
      const Cost cost = CostOf(name, p, 1000);
      EXPECT_EQ(cost.rounds, p - 1);
      EXPECT_THAT(cost.sent, Each((p - 1) * 1000)) << p;
      EXPECT_THAT(cost.received, Each((p - 1) * 1000)) << p;
    }
  }
}

// Where p does not divide S the ranks differ by a block, and the sum is the same.
TEST(Cost, UnevenBlocksOfARing) {
  const int p = 7;
  const std::vector<int64_t> sizes = {15, 15, 14, 14, 14, 0, 1};
  const auto cost = CountCost(ProgramsOf(Named("RingReduceScatter"), p, 0), sizes);
  ASSERT_THAT(cost, IsOk());
  const int64_t all = Sum(sizes);
  for (size_t rank = 0; rank < p; ++rank) {
    EXPECT_EQ(cost->sent[rank], all - sizes[rank]);                    // all blocks but its own
    EXPECT_EQ(cost->received[rank], all - sizes[(rank + p - 1) % p]);  // and all but that of the one before
  }
  EXPECT_EQ(Sum(cost->sent), (p - 1) * all);
  EXPECT_EQ(Sum(cost->received), (p - 1) * all);
}

TEST(Cost, RecursiveDoublingTakesLogRounds) {
  for (int p = 1; p <= 200; ++p) {
    const int q = FloorPower(p), left_over = p - q;
    const Cost cost = CostOf("RecursiveDoublingAllReduce", p, 1000);
    // From one left over to another it is two rounds more; but first both must be at opposite corners of the cube.
    EXPECT_EQ(cost.rounds, Log2(q) + (left_over > q / 2 ? 2 : left_over > 0 ? 1 : 0)) << p;
    EXPECT_EQ(cost.messages, q * Log2(q) + 2 * left_over) << p;
    for (int rank = 0; rank < p; ++rank) {
      const int sends = rank >= q ? 1 : Log2(q) + (rank < left_over ? 1 : 0);
      EXPECT_EQ(cost.sent[static_cast<size_t>(rank)], sends * 1000) << p << ", " << rank;
      EXPECT_EQ(cost.received[static_cast<size_t>(rank)], sends * 1000) << p << ", " << rank;
    }
  }
}

TEST(Cost, HalvingDoublingTakesLogRoundsAndFewBytes) {
  for (int p = 1; p <= 100; ++p) {
    const int q = FloorPower(p), left_over = p - q;
    const Cost cost = CostOf("HalvingDoublingAllReduce", p, 1000);  // S = 1000 q
    EXPECT_EQ(cost.rounds, 2 * Log2(q) + (left_over > 0 ? 2 : 0)) << p;
    for (int rank = 0; rank < p; ++rank) {
      const int64_t blocks = rank >= q ? q : 2 * (q - 1) + (rank < left_over ? q : 0);
      EXPECT_EQ(cost.sent[static_cast<size_t>(rank)], blocks * 1000) << p << ", " << rank;
      EXPECT_EQ(cost.received[static_cast<size_t>(rank)], blocks * 1000) << p << ", " << rank;
    }
  }
}

// Of no number of ranks more bytes than a ring sends, nor more rounds than doubling takes.
TEST(Cost, CirculantTakesLogRoundsAndAsFewBytesAsARing) {
  for (int p = 1; p <= (THOROUGH ? 130 : 66); ++p) {
    const Cost halves = CostOf("CirculantReduceScatter", p, 1000), doubles = CostOf("CirculantAllGather", p, 1000),
               both = CostOf("CirculantAllReduce", p, 1000);  // S = 1000 p
    EXPECT_EQ(halves.rounds, RoundsOfJumps(p)) << p;
    EXPECT_EQ(doubles.rounds, MostHalvingJumps(p)) << p;
    EXPECT_EQ(both.rounds, RoundsOfJumps(p) + MostHalvingJumps(p)) << p;
    EXPECT_LE(both.rounds, 2 * CeilLog2(p)) << p;
    EXPECT_EQ(both.messages, 2 * (p - 1) * p);
    for (const Cost* const half : {&halves, &doubles}) {
      EXPECT_EQ(half->messages, (p - 1) * p);
      EXPECT_THAT(half->sent, Each((p - 1) * 1000)) << p;
      EXPECT_THAT(half->received, Each((p - 1) * 1000)) << p;
    }
    EXPECT_THAT(both.sent, Each(2 * (p - 1) * 1000)) << p;
    EXPECT_THAT(both.received, Each(2 * (p - 1) * 1000)) << p;
  }
}

TEST(Cost, TreesTakeLogRounds) {
  for (int p = 1; p <= 200; ++p) {
    const auto root = static_cast<size_t>(p / 3);
    const Cost broadcast = CostOf("BinomialBroadcast", p, 1000, p / 3),
               reduce = CostOf("BinomialReduce", p, 1000, p / 3);
    EXPECT_EQ(broadcast.rounds, Log2(FloorPower(p))) << p;
    EXPECT_EQ(reduce.rounds, Log2(FloorPower(p))) << p;
    EXPECT_EQ(broadcast.messages, p - 1);
    EXPECT_EQ(broadcast.sent[root], CeilLog2(p) * 1000) << p;
    EXPECT_EQ(*std::ranges::max_element(broadcast.sent), CeilLog2(p) * 1000) << p;
    for (size_t rank = 0; rank < broadcast.received.size(); ++rank) {
      EXPECT_EQ(broadcast.received[rank], rank == root ? 0 : 1000);
    }
    // A reduce is a broadcast backwards.
    EXPECT_EQ(reduce.sent, broadcast.received);
    EXPECT_EQ(reduce.received, broadcast.sent);
  }
}

TEST(Cost, TwoTreesTakeLogRoundsAndSendEverythingOnce) {
  for (int p = 1; p <= 200; ++p) {
    const auto root = static_cast<size_t>(p / 3);
    const Cost broadcast = CostOf("DoubleTreeBroadcast", p, 1000, p / 3),  // S = 2000
        reduce = CostOf("DoubleTreeReduce", p, 1000, p / 3);
    EXPECT_EQ(broadcast.rounds, CeilLog2(p)) << p;
    EXPECT_EQ(reduce.rounds, CeilLog2(p)) << p;
    EXPECT_EQ(broadcast.messages, 2 * (p - 1));
    EXPECT_EQ(broadcast.sent[root], p == 1 ? 0 : 2000) << p;
    for (size_t rank = 0; rank < broadcast.sent.size(); ++rank) {
      EXPECT_EQ(broadcast.received[rank], rank == root ? 0 : 2000) << p << ", " << rank;
      EXPECT_LE(broadcast.sent[rank], 2000) << p << ", " << rank;
    }
    // Of the p - 1 others all pass on, in one tree or the other, but one if they are odd.
    EXPECT_EQ(std::ranges::count(broadcast.sent, 0), p == 1 ? 1 : (p - 1) % 2) << p;
    EXPECT_EQ(reduce.sent, broadcast.received);
    EXPECT_EQ(reduce.received, broadcast.sent);
  }
}

TEST(Cost, TwoTreesUpAndDownSendEverythingTwice) {
  for (int p = 1; p <= 200; ++p) {
    const Cost cost = CostOf("DoubleTreeAllReduce", p, 1000);
    EXPECT_EQ(cost.rounds, 2 * Log2(FloorPower(p))) << p;
    EXPECT_EQ(cost.messages, 4 * (p - 1));
    EXPECT_EQ(*std::ranges::max_element(cost.sent), p == 1 ? 0 : p == 2 ? 2000 : p == 3 ? 3000 : 4000) << p;
    EXPECT_EQ(Sum(cost.sent), 4 * (p - 1) * 1000) << p;
    // What goes up one link comes down it.
    EXPECT_EQ(cost.received, cost.sent) << p;
  }
}

TEST(Cost, ChainsSendEverythingOnce) {
  for (int p = 1; p <= 64; ++p) {
    const int root = p / 2, last = (root + p - 1) % p;
    const Cost broadcast = CostOf("ChainBroadcast", p, 1000, root), reduce = CostOf("ChainReduce", p, 1000, root);
    EXPECT_EQ(broadcast.rounds, p - 1);
    EXPECT_EQ(reduce.rounds, p - 1);
    for (int rank = 0; rank < p; ++rank) {
      EXPECT_EQ(broadcast.sent[static_cast<size_t>(rank)], rank == last ? 0 : 1000);
      EXPECT_EQ(broadcast.received[static_cast<size_t>(rank)], rank == root ? 0 : 1000);
    }
    EXPECT_EQ(reduce.sent, broadcast.received);
    EXPECT_EQ(reduce.received, broadcast.sent);
  }
}

TEST(Cost, AllToAllIsOneRound) {
  for (int p = 2; p <= 64; ++p) {
    const Cost cost = CostOf("PairwiseAllToAll", p, 1000);
    EXPECT_EQ(cost.rounds, 1);
    EXPECT_EQ(cost.messages, p * (p - 1));
    EXPECT_THAT(cost.sent, Each((p - 1) * 1000));
    EXPECT_THAT(cost.received, Each((p - 1) * 1000));
  }
}

TEST(Cost, BruckTakesLogRoundsAndSendsAPieceForEachBit) {
  for (int p = 1; p <= (THOROUGH ? 130 : 66); ++p) {
    const Cost cost = CostOf("BruckAllToAll", p, 1000);
    int bits = 0;
    for (int way = 1; way < p; ++way) bits += std::popcount(static_cast<unsigned>(way));
    EXPECT_EQ(cost.rounds, RoundsOfJumps(p)) << p;
    EXPECT_EQ(cost.messages, p * bits);
    EXPECT_THAT(cost.sent, Each(bits * 1000)) << p;
    EXPECT_THAT(cost.received, Each(bits * 1000)) << p;
    if (FloorPower(p) == p) {
      EXPECT_EQ(bits, p * Log2(p) / 2);
    }
  }
}

// Blocks cut into segments: the same rounds and bytes in more messages, each with its header. That a segment is sent on
// while the next one arrives is no gain over a block that is itself sent on while it arrives (Time.OfSegments).
TEST(Cost, SegmentsSaveNothing) {
  for (const char* const name : {"RingAllReduce", "RingReduceScatter", "RingAllGather", "CirculantAllReduce",
                                 "ChainBroadcast", "ChainReduce", "DoubleTreeBroadcast", "DoubleTreeAllReduce"}) {
    for (const int p : {2, 5, 8, 13}) {
      std::vector<Schedule> programs = ProgramsOf(Named(name), p, 0);
      const int blocks = programs[0].blocks, segments = 4;
      std::vector<std::vector<int>> pieces(static_cast<size_t>(blocks));
      for (int piece = 0; piece < blocks * segments; ++piece) {
        pieces[static_cast<size_t>(piece / segments)].push_back(piece);
      }
      for (Schedule& schedule : programs) schedule = Expand(schedule, pieces, blocks * segments);
      const auto cut = CountCost(programs, std::vector<int64_t>(static_cast<size_t>(blocks * segments), 1000));
      ASSERT_THAT(cut, IsOk());
      const Cost whole = CostOf(name, p, 1000 * segments);
      EXPECT_EQ(cut->rounds, whole.rounds) << name << ", " << p;
      EXPECT_EQ(cut->sent, whole.sent) << name << ", " << p;
      EXPECT_EQ(cut->messages, whole.messages * segments) << name << ", " << p;
    }
  }
}

TEST(Cost, ABarrierSendsNoBytes) {
  for (int p = 1; p <= 200; ++p) {
    const Cost cost = CostOf("DisseminationBarrier", p, 0);
    EXPECT_EQ(cost.rounds, CeilLog2(p)) << p;
    EXPECT_EQ(cost.messages, p * CeilLog2(p)) << p;
    EXPECT_THAT(cost.sent, Each(0));
  }
}

// A send after a send is under way as soon as that; a message behind another on the same stream arrives no sooner.
TEST(Cost, RoundsAreMessagesThatWaitForEachOther) {
  const std::vector<Schedule> star = {{.blocks = 1, .steps = {SendTo(1, 0), SendTo(2, 0)}},
                                      {.blocks = 1, .steps = {ReceiveFrom(0, 0)}},
                                      {.blocks = 1, .steps = {ReceiveFrom(0, 0)}}};
  EXPECT_EQ(CountCost(star, std::vector<int64_t>{8})->rounds, 1);
  // Block 1 waits for nothing, but goes behind block 0, which went to and fro before.
  const std::vector<Schedule> behind = {
      {.blocks = 2, .steps = {SendTo(1, 0), ReceiveFrom(1, 0), SendTo(2, 0), SendTo(2, 1)}},
      {.blocks = 2, .steps = {ReceiveFrom(0, 0), SendTo(0, 0)}},
      {.blocks = 2, .steps = {ReceiveFrom(0, 0), ReceiveFrom(0, 1), SendTo(3, 1)}},
      {.blocks = 2, .steps = {ReceiveFrom(2, 1)}}};
  EXPECT_EQ(CountCost(behind, std::vector<int64_t>{8, 8})->rounds, 4);
}

TEST(Cost, RefusesWhatDoesNotFit) {
  const std::vector<int64_t> size = {8};
  const auto refusal = [&](std::vector<Step> steps0, std::vector<Step> steps1) {
    const std::vector<Schedule> programs = {{.blocks = 1, .steps = std::move(steps0)},
                                            {.blocks = 1, .steps = std::move(steps1)}};
    const absl::Status status = CountCost(programs, size).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({SendTo(1, 0)}, {}), HasSubstr("rank 0 sends more messages to rank 1 than that receives"));
  EXPECT_THAT(refusal({}, {ReceiveFrom(0, 0)}), HasSubstr("rank 0 sends fewer messages to rank 1"));
  EXPECT_THAT(refusal({SendTo(2, 0)}, {}), HasSubstr("rank 0 of 2 has a step with rank 2"));
  EXPECT_THAT(refusal({SendTo(0, 0)}, {}), HasSubstr("rank 0 of 2 has a step with rank 0"));
  EXPECT_THAT(refusal({SendTo(1, -1)}, {}), HasSubstr("a step on block -1 of 1"));
  EXPECT_THAT(refusal({ReceiveFrom(1, 0), SendTo(1, 0)}, {ReceiveFrom(0, 0), SendTo(0, 0)}),
              HasSubstr("4 of 4 steps wait for each other"));
  EXPECT_EQ(CountCost(ProgramsOf(Named("RingAllGather"), 3, 0), size).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(CountCost({}, {}), IsOk());
}

}  // namespace
}  // namespace gyre::internal
