// Random calls over simulated networks with faults: every one ends in the right result or in a status that names a
// rank, and the same seed gives the same run again.
#include <cstdint>
#include <cstdio>
#include <string>

#include "collectives/hierarchical/sim_world.h"
#include "support/campaign.h"

int main(int argc, char** argv) {
  const auto options = gyre::support::ParseCampaignOptions(
      argc, argv,
      {.about = "Random calls over simulated networks with faults. Every round is run twice, and the second run must "
                "bring the same bytes at the same times as the first",
       .rounds = 10'000,
       .what = "how many calls"});

  int64_t wrong = 0;
  for (int64_t round = 0; round < options.rounds; ++round) {
    const uint64_t own = options.seed * 1'000'000 + static_cast<uint64_t>(round);
    // Every tenth world is large, every fourth has no faults.
    const std::string problem = gyre::RunTwice(own, round % 4 != 0, round % 10 == 0 ? 64 : 12);
    if (!problem.empty()) {
      std::printf("%s\n", problem.c_str());
      ++wrong;
    }
    const int64_t done = round + 1;
    if (done % 1000 != 0) continue;
    std::printf("%lld of %lld rounds, %lld wrong\n", static_cast<long long>(done),
                static_cast<long long>(options.rounds), static_cast<long long>(wrong));
  }
  std::printf("sim_campaign: seed %llu: %lld rounds, %lld wrong\n", static_cast<unsigned long long>(options.seed),
              static_cast<long long>(options.rounds), static_cast<long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
