// Random calls over simulated networks with faults: every one ends in the right result or in a status that names a
// rank, and the same seed gives the same run again.
#include <cstdint>
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "collectives/hierarchical/sim_world.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Random calls over simulated networks with faults. Every round is run twice, and the second run must bring the "
      "same bytes at the same times as the first");
  uint64_t seed = 1;
  int rounds = 10000;
  app.add_option("--seed", seed, "The first round's seed; each round has its own");
  app.add_option("--rounds", rounds, "How many");
  CLI11_PARSE(app, argc, argv);

  int wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t own = seed * 1'000'000 + static_cast<uint64_t>(round);
    // Every tenth world is large, every fourth has no faults.
    const std::string problem = gyre::RunTwice(own, round % 4 != 0, round % 10 == 0 ? 64 : 12);
    if (!problem.empty()) {
      std::printf("%s\n", problem.c_str());
      ++wrong;
    }
    if ((round + 1) % 1000 == 0) std::printf("%d of %d rounds, %d wrong\n", round + 1, rounds, wrong);
  }
  std::printf("sim_campaign: seed %llu: %d rounds, %d wrong\n", static_cast<unsigned long long>(seed), rounds, wrong);
  return wrong == 0 ? 0 : 1;
}
