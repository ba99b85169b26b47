#include "plan.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gyre/status_macros.h"

namespace cudnn_cnn {

namespace {

// cuDNN 9.19 calls the handle, here and in the plan, deprecated, and still takes it; the first releases of 9 demand it.
absl::StatusOr<Descriptor> MakeGraph(cudnnHandle_t dnn, const Descriptor& operation) {
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, dnn).Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  RETURN_IF_ERROR(graph.Finalize());
  return graph;
}

// Best first.
absl::StatusOr<std::vector<Descriptor>> Named(const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).Set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  RETURN_IF_ERROR(heuristics.Finalize());
  return heuristics.GetAll(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
}

// Whether cuDNN says so: what it says nothing of may be otherwise.
bool GivesTheSameEveryTime(const Descriptor& configuration) {
  const absl::StatusOr<Descriptor> engine =
      configuration.Get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  if (!engine.ok()) return false;
  const auto notes = engine->GetNotes();
  return notes.ok() && std::ranges::count(*notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == 0;
}

// Of both modes, in the order in which they are to be tried; `last`: why a mode named none.
std::vector<Descriptor> Configurations(const Descriptor& graph, absl::Status& last) {
  std::vector<Descriptor> all;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    absl::StatusOr<std::vector<Descriptor>> named = Named(graph, mode);
    if (!named.ok()) {
      last = named.status();
      continue;
    }
    std::ranges::move(*named, std::back_inserter(all));
  }
  std::ranges::stable_partition(all, GivesTheSameEveryTime);
  return all;
}

struct Built {
  Descriptor plan;
  int64_t workspace;
};

absl::StatusOr<Built> Build(cudnnHandle_t dnn, const Descriptor& configuration, int64_t most_workspace) {
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, dnn).Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  RETURN_IF_ERROR(plan.Finalize());
  ASSIGN_OR_RETURN(const int64_t workspace, plan.GetInt64(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  if (workspace > most_workspace) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it needs ", workspace, " bytes of workspace, and may have ", most_workspace));
  }
  return Built{.plan = std::move(plan), .workspace = workspace};
}

}  // namespace

absl::StatusOr<Plan> Plan::Make(cudnnHandle_t dnn, const Descriptor& operation, int64_t most_workspace,
                                std::string what) {
  ASSIGN_OR_RETURN(const Descriptor graph, MakeGraph(dnn, operation));
  // Not every engine that the heuristics name can be built on every GPU: a failure is a reason to try the next.
  absl::Status last = absl::NotFoundError("its heuristics name none");
  std::vector<Descriptor> configurations = Configurations(graph, last);
  for (Descriptor& configuration : configurations) {
    absl::StatusOr<Built> built = Build(dnn, configuration, most_workspace);
    if (built.ok()) return Plan(std::move(configuration), std::move(built->plan), built->workspace, std::move(what));
    last = built.status();
  }
  return absl::UnimplementedError(
      absl::StrCat("cuDNN has no plan for it (", configurations.size(), " tried): ", last.message()));
}

absl::Status Plan::Run(cudnnHandle_t dnn, std::span<const int64_t> ids, std::span<void* const> tensors,
                       void* workspace) const {
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.SetAll<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
      .SetAll<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, tensors)
      .Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace);
  RETURN_IF_ERROR(pack.Finalize());
  return Check(cudnnBackendExecute(dnn, plan_.get(), pack.get()), what_);
}

}  // namespace cudnn_cnn
