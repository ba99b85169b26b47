#include "collectives/schedule/expand.h"

#include "collectives/schedule/algorithms.h"
#include "collectives/schedule/cost.h"
#include "collectives/schedule/prover.h"
#include "collectives/schedule/ring.h"
#include "collectives/schedule/steps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using support::IsOk;
using Pieces = std::vector<std::vector<int>>;

TEST(Expand, MakesAStepForEachPieceInOrder) {
  const Schedule schedule{.blocks = 3, .steps = {SendTo(1, 2), ReduceFrom(3, 0), ReceiveFrom(4, 1)}};
  const Schedule expanded = Expand(schedule, Pieces{{3, 0}, {}, {1, 4}}, 5);
  EXPECT_EQ(expanded.blocks, 5);
  EXPECT_THAT(expanded.steps, testing::ElementsAre(SendTo(1, 1), SendTo(1, 4), ReduceFrom(3, 3), ReduceFrom(3, 0)));
}

TEST(Expand, OfNothingIsNothing) {
  const Schedule expanded = Expand({.blocks = 0, .steps = {}}, {}, 0);
  EXPECT_EQ(expanded.blocks, 0);
  EXPECT_TRUE(expanded.steps.empty());
}

// Every algorithm in which a block has one number does the same with its pieces, in each order of turns.
TEST(Expand, AlgorithmsStayRight) {
  for (const Algorithm& algorithm : AllAlgorithms()) {
    // What says which block is whose is not true of pieces.
    if (algorithm.claim != AllReduced && algorithm.claim != Broadcasted && algorithm.claim != Reduced) continue;
    for (const int size : {2, 3, 5, 8, 13}) {
      std::vector<Schedule> programs = ProgramsOf(algorithm, size, size - 1);
      Pieces pieces(static_cast<size_t>(programs[0].blocks));
      int blocks = 0;
      for (size_t block = 0; block < pieces.size(); ++block) {
        for (size_t piece = 0; piece <= block % 3; ++piece) pieces[block].insert(pieces[block].begin(), blocks++);
      }
      for (Schedule& schedule : programs) schedule = Expand(schedule, pieces, blocks);
      for (uint64_t seed = 0; seed < 3; ++seed) {
        const auto outcome = RunSymbolically(programs, {.seed = seed});
        ASSERT_THAT(outcome, IsOk()) << algorithm.name;
        EXPECT_THAT(algorithm.claim(*outcome, size - 1), IsOk())
            << algorithm.name << ", " << size << " ranks, seed " << seed;
      }
    }
  }
}

// A ring over the even blocks for rank 0, the odd ones for rank 1: the pieces of a block end where the block would.
TEST(Expand, AReduceScatterOfPiecesEndsWithTheirOwner) {
  const Pieces pieces = {{0, 2}, {1, 3}};
  const std::vector<Schedule> programs = {Expand(RingReduceScatter(0, 2), pieces, 4),
                                          Expand(RingReduceScatter(1, 2), pieces, 4)};
  const auto outcome = RunSymbolically(programs, {.units = {1, 2, 3, 4}});
  ASSERT_THAT(outcome, IsOk());
  for (const int block : {0, 1, 2, 3}) {
    for (int unit = 0; unit < outcome->UnitsOf(block); ++unit) {
      EXPECT_THAT(outcome->values.OnceFromEach(outcome->At(block % 2, block, unit), block), IsOk());
    }
  }
  const auto cost = CountCost(programs, std::vector<int64_t>{1, 10, 100, 1000});
  ASSERT_THAT(cost, IsOk());
  EXPECT_THAT(cost->sent, testing::ElementsAre(1010, 101));
}

}  // namespace
}  // namespace gyre::internal
