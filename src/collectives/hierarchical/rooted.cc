#include "collectives/hierarchical/rooted.h"

#include <cstring>
#include <utility>

#include "collectives/selection/algorithms.h"
#include "collectives/shm/slices.h"

namespace gyre::internal {

namespace {

// Up to here one rail does it all.
constexpr int64_t kSmallBytes = 64 << 10;

int RailsFor(const Team& team, const ConstTensorView& in) {
  return in.bytes() <= kSmallBytes ? 1 : team.rails();
}

MutableBytes SliceAt(void* data, const RailSlices& slices, int rail, int64_t element) {
  const auto index = static_cast<size_t>(rail);
  return {static_cast<std::byte*>(data) + slices.begins[index] * element,
          static_cast<size_t>(slices.counts[index] * element)};
}

}  // namespace

HierarchicalBroadcast::HierarchicalBroadcast(std::shared_ptr<Team> team, const Call& call)
    : HierarchicalOperation(std::move(team), call, 3),
      root_(this->team().place(call.root)),
      rails_(RailsFor(this->team(), call.in)),
      slices_(call.in.count, this->team().local_size(), rails_, kSliceGrain) {}

HierarchicalBroadcast::Stage HierarchicalBroadcast::MakeStage(int index) {
  Stage stage;
  const bool at_root = team().host() == root_.host;
  const int rail = team().local_rank(), hosts = team().hosts();
  void* const data = call().out.data;
  std::unique_ptr<Operation> local;
  if (index == 0 && at_root) local = LocalBroadcast(root_.local, data, call().out.count);
  if (index == 1 && rail < rails_) {
    const MutableBytes slice = SliceAt(data, slices_, rail, element());
    const Selection selection = team().Select(Collective::kBroadcast, call().in.bytes(), rails_);
    const Schedule schedule =
        MakeSchedule(Collective::kBroadcast, selection.algorithm, team().host(), hosts, root_.host);
    const std::vector<MutableBytes> blocks = CutIntoBlocks(slice, schedule.blocks, element());
    stage.network = Network(schedule, team().Rail(rail), blocks);
  }
  if (index == 2 && !at_root) {
    local = LocalAllGather(SliceAt(data, slices_, rail, element()).data(), slices_.counts, data);
  }
  if (local != nullptr) stage.local.push_back(std::move(local));
  return stage;
}

HierarchicalReduce::HierarchicalReduce(std::shared_ptr<Team> team, const Call& call)
    : HierarchicalOperation(std::move(team), call, 3),
      root_(this->team().place(call.root)),
      rails_(RailsFor(this->team(), call.in)),
      slices_(call.in.count, this->team().local_size(), rails_, kSliceGrain),
      buffer_(static_cast<size_t>(call.in.bytes())) {}

HierarchicalReduce::Stage HierarchicalReduce::MakeStage(int index) {
  Stage stage;
  const int rail = team().local_rank(), hosts = team().hosts();
  std::unique_ptr<Operation> local;
  if (index == 0) local = LocalReduceScatter(call().in.data, slices_.counts, OwnSlice());
  if (index == 1 && rail < rails_) {
    const MutableBytes slice = SliceAt(buffer_.data(), slices_, rail, element());
    const Selection selection = team().Select(Collective::kReduce, call().in.bytes(), rails_);
    const Schedule schedule = MakeSchedule(Collective::kReduce, selection.algorithm, team().host(), hosts, root_.host);
    const std::vector<MutableBytes> blocks = CutIntoBlocks(slice, schedule.blocks, element());
    stage.network = Network(schedule, team().Rail(rail), blocks);
  }
  if (index == 2 && team().host() == root_.host) {
    local = LocalAllGather(OwnSlice(), slices_.counts, buffer_.data());
  }
  if (local != nullptr) stage.local.push_back(std::move(local));
  return stage;
}

absl::Status HierarchicalReduce::Finish() {
  if (!is_root() || buffer_.empty()) return absl::OkStatus();
  std::memcpy(call().out.data, buffer_.data(), buffer_.size());
  ApplyResultScale(call().out.data, call().in.count);
  return absl::OkStatus();
}

}  // namespace gyre::internal
