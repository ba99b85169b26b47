#include <utility>

#include "commands.h"
#include "gyre/status_macros.h"

namespace gyre::bench {

absl::Status RunMemory(const SweepOptions& options, const std::string& command) {
  ASSIGN_OR_RETURN(const auto runtime, Runtime::Create());
  ASSIGN_OR_RETURN(Sweep sweep, Sweep::Create(options, runtime->world()));
  Contenders copy, bound;
  copy.push_back(MakeCopy(*runtime));
  ASSIGN_OR_RETURN(auto pushing, MakeBound(runtime->world(), sweep.largest()));
  bound.push_back(std::move(pushing));
  ASSIGN_OR_RETURN(const auto report, Report::OpenOnRankZero(options.json, command, runtime->world()));
  RETURN_IF_ERROR(sweep.Run(Operation::kCopy, copy, report.get()));
  return sweep.Run(Operation::kAllReduce, bound, report.get());
}

}  // namespace gyre::bench
