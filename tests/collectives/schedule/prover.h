// Prover: runs the schedules of all ranks on symbolic values, over the poorest transport that schedule.h allows, and
// finds deadlocks, messages that are not met or meet the wrong block, and (with the claims) wrong results.
//
// The transport holds one unit of one message for each direction of each pair, and nothing else: a send goes on when
// that place is free, a receive takes what is there. A block is one unit, which also stands for an empty one, or
// several, of which each follows the one before through the steps.
//
// In this model a step that can go on stays able to until it does, so that the order in which ranks get their turns
// changes no result; several orders are run to see that this is so.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/schedule/schedule.h"
#include "collectives/schedule/values.h"

namespace gyre::internal {

// Which block a message from one rank to another must be for, in the terms of either.
enum class Meeting {
  kSameBlock,  // the one of the same number
  kPiece,      // block b of rank a arrives as block (ranks + a) of rank b: alltoall, straight
  kAny,        // any of the same size; what went where, the claim alone says: alltoall, relayed
};

struct Conditions {
  uint64_t seed = 0;            // who gets the next turn: newest first, oldest first, or at random
  std::vector<int> units = {};  // by block; none: one each
  // A send waits until this many units more of its block are there, or the last: executors that send no crumbs.
  int grain = 1;
  // What two ranks combine counts as different for (a, b) and (b, a), and the lower rank's comes first: for executors
  // that order it so, to have the same bits everywhere of what is not commutative (NaN, a maximum of +0 and -0).
  bool lower_rank_first = false;
  Meeting meeting = Meeting::kSameBlock;
};

// What all blocks hold in the end.
struct Outcome {
  Value At(int rank, int block, int unit) const {
    return held[static_cast<size_t>(rank) * static_cast<size_t>(first_unit.back()) +
                static_cast<size_t>(first_unit[static_cast<size_t>(block)] + unit)];
  }
  int UnitsOf(int block) const {
    return first_unit[static_cast<size_t>(block) + 1] - first_unit[static_cast<size_t>(block)];
  }

  int ranks;
  int blocks;
  std::vector<int> first_unit;  // of each block, and the number of all
  std::vector<Value> held;      // by rank and unit
  Values values;
};

// The error says what is wrong with the schedules, and in which steps.
absl::StatusOr<Outcome> RunSymbolically(std::span<const Schedule> programs, const Conditions& conditions);

}  // namespace gyre::internal
