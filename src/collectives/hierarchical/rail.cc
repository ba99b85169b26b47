#include "collectives/hierarchical/rail.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "collectives/hierarchical/layout.h"
#include "collectives/selection/algorithms.h"

namespace gyre::internal {

namespace {

Collective OperationOf(const Call& call) {
  switch (call.kind) {
    case CallKind::kReduceScatter: return Collective::kReduceScatter;
    case CallKind::kAllGather: return Collective::kAllGather;
    case CallKind::kBroadcast: return Collective::kBroadcast;
    default: return Collective::kAllReduce;
  }
}

}  // namespace

HierarchicalRail::HierarchicalRail(std::shared_ptr<Team> team, const Call& call)
    : HierarchicalOperation(std::move(team), call, 1) {
  LearnNothing();
}

HierarchicalRail::Stage HierarchicalRail::MakeStage(int /*index*/) {
  Stage stage;
  const int rail = team().local_rank();
  if (rail >= team().rails() || call().out.count == 0) return stage;
  const Collective operation = OperationOf(call());
  const Selection selection = team().Select(operation, call().out.bytes() * team().rails(), team().rails());
  const int root = call().kind == CallKind::kBroadcast ? team().place(call().root).host : 0;
  const Schedule schedule = MakeSchedule(operation, selection.algorithm, team().host(), team().hosts(), root);
  stage.network = Network(schedule, team().Rail(rail), Blocks(schedule));
  return stage;
}

std::vector<MutableBytes> HierarchicalRail::Blocks(const Schedule& schedule) const {
  const MutableBytes all(static_cast<std::byte*>(call().out.data), static_cast<size_t>(call().out.bytes()));
  if (call().counts.empty()) return CutIntoBlocks(all, schedule.blocks, element());
  std::vector<MutableBytes> blocks;
  size_t begin = 0;
  for (const int64_t count : call().counts) {
    const auto bytes = static_cast<size_t>(count * element());
    blocks.push_back(all.subspan(begin, bytes));
    begin += bytes;
  }
  return blocks;
}

}  // namespace gyre::internal
