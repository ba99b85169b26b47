// The command line that every campaign takes, for scripts/campaign calls them all alike: --seed S --rounds N.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace gyre::support {

struct CampaignOptions {
  // Adds them to `app`, which must parse while this object is where it is. `what`: what the rounds are.
  CampaignOptions(CLI::App& app, int64_t rounds_by_default, const std::string& what) : rounds(rounds_by_default) {
    app.add_option("--seed", seed, "the same seed makes the same choices");
    app.add_option("--rounds", rounds, what)->check(CLI::PositiveNumber);
  }
  CampaignOptions(const CampaignOptions&) = delete;
  CampaignOptions& operator=(const CampaignOptions&) = delete;

  uint64_t seed = 1;
  int64_t rounds;
};

}  // namespace gyre::support
