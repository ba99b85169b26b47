#include "collectives/hierarchical/adasum.h"
#include "collectives/hierarchical/allreduce.h"
#include "collectives/hierarchical/operation.h"
#include "collectives/hierarchical/pairwise.h"
#include "collectives/hierarchical/relayed.h"
#include "collectives/hierarchical/rooted.h"
#include "collectives/hierarchical/segments.h"

namespace gyre::internal {

namespace {

std::shared_ptr<HierarchicalOperation> MakeAllToAll(const std::shared_ptr<Team>& team, Call call) {
  const int64_t host_bytes = call.in.bytes() * team->most_local();
  call.relayed =
      HierarchicalRelayedAllToAll::Suits(*team, call) &&
      team->SelectAtStart(Collective::kAllToAll, host_bytes, team->most_local()).algorithm == Algorithm::kBruck;
  if (call.relayed) return std::make_shared<HierarchicalRelayedAllToAll>(team, call);
  return std::make_shared<HierarchicalAllToAll>(team, call);
}

}  // namespace

std::shared_ptr<HierarchicalOperation> MakeHierarchical(const std::shared_ptr<Team>& team, const Call& call) {
  switch (call.kind) {
    case CallKind::kAllReduce:
      if (call.op == ReduceOp::kAdasum) return std::make_shared<HierarchicalAdasum>(team, call);
      return std::make_shared<HierarchicalAllReduce>(team, call);
    case CallKind::kReduceScatter: return std::make_shared<HierarchicalReduceScatter>(team, call);
    case CallKind::kAllGather: return std::make_shared<HierarchicalAllGather>(team, call);
    case CallKind::kBroadcast: return std::make_shared<HierarchicalBroadcast>(team, call);
    case CallKind::kReduce: return std::make_shared<HierarchicalReduce>(team, call);
    case CallKind::kAllToAll: return MakeAllToAll(team, call);
    case CallKind::kMessage: return std::make_shared<HierarchicalMessage>(team, call);
    case CallKind::kBarrier:
    case CallKind::kRefused: break;
  }
  return std::make_shared<HierarchicalBarrier>(team, call);
}

std::shared_ptr<HierarchicalOperation> MakeHierarchicalRefusal(const std::shared_ptr<Team>& team, const Call& call,
                                                               const absl::Status& why) {
  return std::make_shared<HierarchicalRefusal>(team, call, why);
}

}  // namespace gyre::internal
