// Parameter servers and their workers, simulated with crashes, preemptions, delays, reorders, duplicates and cuts
// (cluster.h): one random cluster a round.
//
//   ps_campaign --seed S --rounds N
//
// Exit code 1 if something did not hold that must. Each failure is printed with what reproduces it.
#include <cstdint>
#include <cstdio>
#include <string>

#include "cluster.h"
#include "support/campaign.h"

int main(int argc, char** argv) {
  const auto options = gyre::support::ParseCampaignOptions(
      argc, argv,
      {.about = "Simulated parameter servers and workers with faults", .rounds = 100, .what = "how many clusters"});
  constexpr int kMostPrinted = 10;
  int64_t wrong = 0, messages = 0;
  for (int64_t round = 0; round < options.rounds; ++round) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(round);
    gyre::ps::Cluster cluster(gyre::ps::RandomPlan(seed));
    std::string problem = cluster.Run();
    messages += cluster.messages();
    // Now and then once more: the same, byte for byte.
    if (problem.empty() && round % 20 == 0) {
      gyre::ps::Cluster again(gyre::ps::RandomPlan(seed));
      if (again.Run() != problem || again.trace() != cluster.trace()) problem = "the same seed gives another run";
    }
    if (!problem.empty() && ++wrong <= kMostPrinted) {
      std::printf("%s: --rounds 1 --seed %llu\n", problem.c_str(), static_cast<unsigned long long>(seed));
    }
    if ((round + 1) % 1000 == 0) {
      std::printf("%lld clusters, %lld wrong\n", static_cast<long long>(round + 1), static_cast<long long>(wrong));
      std::fflush(stdout);
    }
  }
  std::printf("ps_campaign: seed %llu: %lld clusters, %lld messages, %lld wrong\n",
              static_cast<unsigned long long>(options.seed), static_cast<long long>(options.rounds),
              static_cast<long long>(messages), static_cast<long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
