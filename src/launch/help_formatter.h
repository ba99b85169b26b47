// How gyrerun's --help looks.
#pragma once

#include <string>
#include <utility>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"

namespace gyre::launch {

class HelpFormatter final : public CLI::Formatter {
 public:
  // `usage`: the command with its arguments, "gyrerun [OPTIONS] PROGRAM".
  explicit HelpFormatter(std::string usage) : usage_("\nUsage: " + std::move(usage) + "\n") { column_width(30); }

  std::string make_usage(const CLI::App*, std::string) const override { return usage_; }

 private:
  std::string usage_;
};

}  // namespace gyre::launch
