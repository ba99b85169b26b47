// All algorithms of src/collectives/schedule, in a table for tests.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "collectives/schedule/claims.h"
#include "collectives/schedule/prover.h"
#include "collectives/schedule/schedule.h"

namespace gyre::internal {

struct Algorithm {
  std::string name;
  std::function<Schedule(int rank, int size, int root)> make;
  Claim claim = nullptr;
  bool rooted = false;
  Meeting meeting = Meeting::kSameBlock;
  // The steps of all ranks together grow with the square of the ranks.
  bool quadratic = false;
};

std::vector<Algorithm> AllAlgorithms();

// The schedules of all ranks.
std::vector<Schedule> ProgramsOf(const Algorithm& algorithm, int size, int root);

// What names of tests are made of.
inline void PrintTo(const Algorithm& algorithm, std::ostream* out) {
  *out << algorithm.name;
}

}  // namespace gyre::internal
