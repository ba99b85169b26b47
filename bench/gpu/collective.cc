#include "gpu/collective.h"

#include <utility>

#include "gpu/cuda.h"
#include "gyre/status_macros.h"
#include "report.h"

namespace gyre::bench::gpu {

absl::Status RunCollective(Operation operation, const CollectiveOptions& options, const std::string& command) {
  ASSIGN_OR_RETURN(const auto runtime, Runtime::Create());
  ASSIGN_OR_RETURN(const int gpu, ChooseGpu(runtime->world().local_rank()));
  ASSIGN_OR_RETURN(Sweep sweep, Sweep::Create(options.sweep, runtime->world()));
  Contenders contenders;
  ASSIGN_OR_RETURN(auto gyre, MakeGyreOnGpu(*runtime, gpu));
  contenders.push_back(std::move(gyre));
  if (options.against_nccl) {
    ASSIGN_OR_RETURN(auto nccl, MakeNccl(runtime->world(), gpu));
    contenders.push_back(std::move(nccl));
  }
  if (options.against_copy) {
    ASSIGN_OR_RETURN(auto copy, MakeCopyOnGpu());
    contenders.push_back(std::move(copy));
  }
  if (options.against_host) {
    ASSIGN_OR_RETURN(auto copy, MakeCopyByHost());
    contenders.push_back(std::move(copy));
    contenders.push_back(MakeGyre(*runtime, "gyre-host"));
  }
  ASSIGN_OR_RETURN(const auto report, Report::OpenOnRankZero(options.sweep.json, command, runtime->world()));
  return sweep.Run(operation, contenders, report.get());
}

}  // namespace gyre::bench::gpu
