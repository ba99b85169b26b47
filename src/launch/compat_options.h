// What horovodrun calls otherwise than gyrerun, or has besides. Spellings of one and the same option are beside it in
// options.cc.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace gyre::launch {

struct Options;

class CompatFlags {
 public:
  void Declare(CLI::App& app);
  // Makes what was given part of `options`, whose own flags have been parsed. kInvalidArgument as ParseOptions.
  absl::Status Finish(const CLI::App& app, Options& options) const;

 private:
  absl::Status FinishSsh(Options& options) const;
  absl::Status FinishRange(Options& options) const;

  int ssh_port_ = 0;
  std::string ssh_identity_;
  int least_ranks_ = 0;
  int most_ranks_ = 0;
  double fusion_threshold_ = 0;
  double cycle_time_ = 0;
  std::string log_level_;
};

}  // namespace gyre::launch
