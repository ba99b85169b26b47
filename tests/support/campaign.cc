#include "support/campaign.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

namespace gyre::support {

CampaignOptions ParseCampaignOptions(int argc, char** argv, const CampaignUsage& usage) {
  CampaignOptions options{.rounds = usage.rounds};
  CLI::App app(usage.about);
  app.add_option("--seed", options.seed, "the same seed makes the same choices");
  app.add_option("--rounds", options.rounds, usage.what)->check(CLI::PositiveNumber);
  if (!usage.parts.empty()) {
    app.add_option("--only", options.only, "one part alone")->check(CLI::IsMember(usage.parts));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  return options;
}

}  // namespace gyre::support
