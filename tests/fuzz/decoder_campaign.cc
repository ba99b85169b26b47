// Feeds every decoder that sees a network's bytes with valid and mutated inputs (fuzzers.h): none may crash, take more
// memory than the input justifies, loop, or decode something else than was encoded.
//
//   decoder_campaign --seed S --rounds N [--only NAME]      N: how many inputs
//
// Exit code 1 if one did. Each failure is printed with what reproduces it.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "fuzzers.h"
#include "support/campaign.h"

namespace gyre::fuzz {
namespace {

constexpr std::array kFuzzers = {
    Fuzzer{"frames", 80, FuzzFrames},
    Fuzzer{"handshake", 50, FuzzHandshake},
    Fuzzer{"endpoint", 50, FuzzEndpoint},
    Fuzzer{"store-messages", 90, FuzzStoreMessages},
    Fuzzer{"store-state", 30, FuzzStoreState},
    Fuzzer{"control-frames", 90, FuzzControlFrames},
    Fuzzer{"control-link", 20, FuzzControlLink},
    Fuzzer{"step-header", 90, FuzzStepHeader},
    Fuzzer{"executor", 30, FuzzExecutor},
    Fuzzer{"rank-place", 40, FuzzRankPlace},
    Fuzzer{"network-report", 40, FuzzNetworkReport},
    Fuzzer{"agent-messages", 130, FuzzAgentMessages},
    Fuzzer{"preamble", 20, FuzzPreamble},
    Fuzzer{"ps-messages", 80, FuzzPsMessages},
    Fuzzer{"ps-machines", 20, FuzzPsMachines},
    Fuzzer{"ps-manifest", 20, FuzzPsManifest},
    Fuzzer{"ps-setup", 20, FuzzPsSetup},
    Fuzzer{"ps-values", 20, FuzzPsValues},
    Fuzzer{"payload", 60, FuzzPayload},
    Fuzzer{"index-code", 60, FuzzIndexCode},
};

// Each round has a seed of its own, so that one can be run alone: --rounds 1 --only NAME --seed (the printed one).
int64_t Run(const Fuzzer& fuzzer, uint64_t seed, int64_t rounds) {
  constexpr int kMostPrinted = 10;
  int64_t wrong = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    const uint64_t own = seed + static_cast<uint64_t>(round);
    Mutator random(own);
    const std::string problem = fuzzer.round(random);
    if (problem.empty()) continue;
    if (++wrong <= kMostPrinted) {
      std::printf("%s: --only %s --rounds 1 --seed %llu\n", problem.c_str(), fuzzer.name.data(),
                  static_cast<unsigned long long>(own));
    }
  }
  std::printf("%-15s %9lld inputs, %lld wrong\n", fuzzer.name.data(), static_cast<long long>(rounds),
              static_cast<long long>(wrong));
  std::fflush(stdout);
  return wrong;
}

}  // namespace
}  // namespace gyre::fuzz

int main(int argc, char** argv) {
  std::vector<std::string> decoders;
  for (const gyre::fuzz::Fuzzer& fuzzer : gyre::fuzz::kFuzzers) decoders.emplace_back(fuzzer.name);
  const auto options =
      gyre::support::ParseCampaignOptions(argc, argv,
                                          {.about = "Valid and mutated inputs for every decoder of a network's bytes",
                                           .rounds = 100'000,
                                           .what = "how many inputs, all decoders together",
                                           .parts = decoders});
  const std::string& only = options.only;
  int64_t wrong = 0, done = 0;
  for (const gyre::fuzz::Fuzzer& fuzzer : gyre::fuzz::kFuzzers) {
    if (!only.empty() && only != fuzzer.name) continue;
    const int64_t share = only.empty() ? std::max<int64_t>(options.rounds * fuzzer.share / 1000, 1) : options.rounds;
    wrong += gyre::fuzz::Run(fuzzer, options.seed, share);
    done += share;
  }
  std::printf("decoder_campaign: seed %llu: %lld inputs, %lld wrong\n", static_cast<unsigned long long>(options.seed),
              static_cast<long long>(done), static_cast<long long>(wrong));
  return wrong == 0 && done > 0 ? 0 : 1;
}
