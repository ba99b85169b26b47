// The command line that every campaign takes, for scripts/campaign calls them all alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gyre::support {

struct CampaignOptions {
  uint64_t seed = 1;  // the same seed makes the same choices
  int64_t rounds = 0;
  std::string only = {};  // one of the campaign's parts; empty: all of them
};

// What --help says of a campaign, and its defaults.
struct CampaignUsage {
  std::string about;
  int64_t rounds;                       // where --rounds is not given
  std::string what;                     // what the rounds are
  std::vector<std::string> parts = {};  // what --only takes; empty: there is no --only
};

// Reads --seed S, --rounds N and --only PART. Ends the process after --help and after a wrong option.
CampaignOptions ParseCampaignOptions(int argc, char** argv, const CampaignUsage& usage);

}  // namespace gyre::support
