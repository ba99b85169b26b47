#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "commands.h"
#include "gyre/status_macros.h"

namespace gyre::bench {

namespace {

absl::StatusOr<Contenders> MakePeer(const std::string& name, Operation operation, int64_t largest, Communicator& world,
                                    MpiSession* mpi) {
  if (name == "gloo") return MakeGloo(world, operation);
  Contenders peer;
  if (name == "mpi") {
    peer.push_back(mpi->MakeContender());
  } else {
    ASSIGN_OR_RETURN(auto bound, MakeBound(world, largest));
    peer.push_back(std::move(bound));
  }
  return peer;
}

}  // namespace

absl::Status RunCollective(Operation operation, const CollectiveOptions& options, const std::string& command) {
  std::unique_ptr<MpiSession> mpi;  // before the runtime, and ended after it
  if (std::ranges::find(options.against, "mpi") != options.against.end()) {
    ASSIGN_OR_RETURN(mpi, MpiSession::Start());
  }
  ASSIGN_OR_RETURN(const auto runtime, Runtime::Create());
  ASSIGN_OR_RETURN(Sweep sweep, Sweep::Create(options.sweep, runtime->world()));
  Contenders contenders;
  contenders.push_back(MakeGyre(*runtime));
  for (const std::string& peer : options.against) {
    ASSIGN_OR_RETURN(Contenders more, MakePeer(peer, operation, sweep.largest(), runtime->world(), mpi.get()));
    std::ranges::move(more, std::back_inserter(contenders));
  }
  ASSIGN_OR_RETURN(const auto report, Report::OpenOnRankZero(options.sweep.json, command, runtime->world()));
  return sweep.Run(operation, contenders, report.get());
}

}  // namespace gyre::bench
