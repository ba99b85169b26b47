// Random clusters that negotiate named operations: none hangs, all ranks agree, and every mismatch and every rank that
// does not come is named.
#include <cstdint>
#include <cstdio>
#include <string>

#include "fusion/negotiation_world.h"
#include "support/campaign.h"

int main(int argc, char** argv) {
  const auto options = gyre::support::ParseCampaignOptions(
      argc, argv,
      {.about = "Random programs of 2 to 64 simulated ranks that negotiate, freeze and thaw the order of operations",
       .rounds = 10'000,
       .what = "how many clusters"});

  int64_t wrong = 0;
  for (int64_t round = 0; round < options.rounds; ++round) {
    const uint64_t own = options.seed * 1'000'000 + static_cast<uint64_t>(round);
    const std::string problem = gyre::RunRandomNegotiation(own, round % 8 == 0 ? 64 : 8);
    if (!problem.empty()) {
      std::printf("%s\n", problem.c_str());
      ++wrong;
    }
    const int64_t done = round + 1;
    if (done % 1000 != 0) continue;
    std::printf("%lld of %lld rounds, %lld wrong\n", static_cast<long long>(done),
                static_cast<long long>(options.rounds), static_cast<long long>(wrong));
  }
  std::printf("negotiation_campaign: seed %llu: %lld rounds, %lld wrong\n",
              static_cast<unsigned long long>(options.seed), static_cast<long long>(options.rounds),
              static_cast<long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
