#include <algorithm>
#include <memory>
#include <string>

#include "commands.h"
#include "gyre/status_macros.h"

namespace gyre::bench {

absl::Status RunCollective(Operation operation, const CollectiveOptions& options, const std::string& command) {
  std::unique_ptr<MpiSession> mpi;  // before the runtime, and ended after it
  if (std::ranges::find(options.against, "mpi") != options.against.end()) {
    ASSIGN_OR_RETURN(mpi, MpiSession::Start());
  }
  ASSIGN_OR_RETURN(const auto runtime, Runtime::Create());
  ASSIGN_OR_RETURN(Sweep sweep, Sweep::Create(options.sweep, runtime->world()));
  Contenders contenders;
  contenders.push_back(MakeGyre(*runtime));
  if (mpi != nullptr) contenders.push_back(mpi->MakeContender());
  ASSIGN_OR_RETURN(const auto report, Report::OpenOnRankZero(options.sweep.json, command, runtime->world()));
  return sweep.Run(operation, contenders, report.get());
}

}  // namespace gyre::bench
