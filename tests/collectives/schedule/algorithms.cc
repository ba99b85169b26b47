#include "collectives/schedule/algorithms.h"

#include "collectives/schedule/binomial.h"
#include "collectives/schedule/bruck.h"
#include "collectives/schedule/chain.h"
#include "collectives/schedule/circulant.h"
#include "collectives/schedule/dissemination.h"
#include "collectives/schedule/double_tree.h"
#include "collectives/schedule/halving_doubling.h"
#include "collectives/schedule/pairwise.h"
#include "collectives/schedule/recursive_doubling.h"
#include "collectives/schedule/ring.h"

namespace gyre::internal {

namespace {

using Rootless = Schedule (*)(int rank, int size);

std::function<Schedule(int, int, int)> ForAnyRoot(Rootless make) {
  return [make](int rank, int size, int) { return make(rank, size); };
}

// The prover's values are replaced by what is received; what a rank has heard is not.
Schedule HearingBarrier(int rank, int size) {
  Schedule schedule = DisseminationBarrier(rank, size);
  for (Step& step : schedule.steps) {
    if (step.kind == Step::Kind::kReceive) step.kind = Step::Kind::kReceiveReduce;
  }
  return schedule;
}

}  // namespace

std::vector<Algorithm> AllAlgorithms() {
  return {
      {.name = "RingAllReduce", .make = ForAnyRoot(RingAllReduce), .claim = AllReduced, .quadratic = true},
      {.name = "RecursiveDoublingAllReduce", .make = ForAnyRoot(RecursiveDoublingAllReduce), .claim = AllReduced},
      {.name = "HalvingDoublingAllReduce",
       .make = ForAnyRoot(HalvingDoublingAllReduce),
       .claim = AllReduced,
       .quadratic = true},
      {.name = "CirculantAllReduce", .make = ForAnyRoot(CirculantAllReduce), .claim = AllReduced, .quadratic = true},
      {.name = "DoubleTreeAllReduce", .make = ForAnyRoot(DoubleTreeAllReduce), .claim = AllReduced},
      {.name = "RingReduceScatter", .make = ForAnyRoot(RingReduceScatter), .claim = ReduceScattered, .quadratic = true},
      {.name = "RingAllGather", .make = ForAnyRoot(RingAllGather), .claim = AllGathered, .quadratic = true},
      {.name = "CirculantReduceScatter",
       .make = ForAnyRoot(CirculantReduceScatter),
       .claim = ReduceScattered,
       .quadratic = true},
      {.name = "CirculantAllGather", .make = ForAnyRoot(CirculantAllGather), .claim = AllGathered, .quadratic = true},
      {.name = "BinomialBroadcast", .make = BinomialBroadcast, .claim = Broadcasted, .rooted = true},
      {.name = "ChainBroadcast", .make = ChainBroadcast, .claim = Broadcasted, .rooted = true},
      {.name = "DoubleTreeBroadcast", .make = DoubleTreeBroadcast, .claim = Broadcasted, .rooted = true},
      {.name = "BinomialReduce", .make = BinomialReduce, .claim = Reduced, .rooted = true},
      {.name = "ChainReduce", .make = ChainReduce, .claim = Reduced, .rooted = true},
      {.name = "DoubleTreeReduce", .make = DoubleTreeReduce, .claim = Reduced, .rooted = true},
      {.name = "PairwiseAllToAll",
       .make = ForAnyRoot(PairwiseAllToAll),
       .claim = Exchanged,
       .meeting = Meeting::kPiece,
       .quadratic = true},
      {.name = "BruckAllToAll",
       .make = ForAnyRoot(BruckAllToAll),
       .claim = Exchanged,
       .meeting = Meeting::kAny,
       .quadratic = true},
      {.name = "DisseminationBarrier", .make = ForAnyRoot(HearingBarrier), .claim = AllHaveCome},
  };
}

std::vector<Schedule> ProgramsOf(const Algorithm& algorithm, int size, int root) {
  std::vector<Schedule> programs;
  for (int rank = 0; rank < size; ++rank) programs.push_back(algorithm.make(rank, size, root));
  return programs;
}

}  // namespace gyre::internal
