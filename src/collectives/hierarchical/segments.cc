#include "collectives/hierarchical/segments.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/selection/algorithms.h"

namespace gyre::internal {

namespace {

std::vector<MutableBytes> BlocksOf(const RailOrder& order, int rail, int hosts, std::byte* buffer, int64_t element) {
  std::vector<MutableBytes> blocks;
  for (int host = 0; host < hosts; ++host) {
    const Range range = order.ForHost(rail, host);
    blocks.emplace_back(buffer + range.begin * element, static_cast<size_t>(range.count * element));
  }
  return blocks;
}

std::vector<int64_t> CountsOf(const Call& call) {
  return {call.counts.begin(), call.counts.end()};
}

}  // namespace

HierarchicalReduceScatter::HierarchicalReduceScatter(std::shared_ptr<Team> team, const Call& call)
    : HierarchicalOperation(std::move(team), call, 3),
      order_(this->team(), CountsOf(call)),
      buffer_(static_cast<size_t>(order_.total() * element())) {}

HierarchicalReduceScatter::Stage HierarchicalReduceScatter::MakeStage(int index) {
  Stage stage;
  const int local = team().local_rank(), local_size = team().local_size();
  if (index == 0) {
    order_.Pack(call().in.data, buffer_.data(), element());
    std::byte* const own = on_rail() ? At(order_.ForRail(local).begin) : buffer_.data();
    if (auto scatter = LocalReduceScatter(buffer_.data(), order_.RailCounts(local_size), own)) {
      stage.local.push_back(std::move(scatter));
    }
  } else if (index == 1 && on_rail()) {
    const Selection selection = team().Select(Collective::kReduceScatter, order_.total() * element(), team().rails());
    stage.network =
        Network(MakeSchedule(Collective::kReduceScatter, selection.algorithm, team().host(), team().hosts()),
                team().Rail(local), BlocksOf(order_, local, team().hosts(), buffer_.data(), element()));
    stage.transfer = {Collective::kReduceScatter, selection.algorithm, order_.ForRail(local).count * element(),
                      team().hosts(), team().rails()};
  } else if (index == 2 && local_size > team().rails()) {
    // Everybody gets the host's segments, by rail, at the buffer's beginning, and takes its own.
    const std::vector<int64_t> counts = order_.HostCounts(team().host(), local_size);
    if (const Range range = on_rail() ? order_.ForHost(local, team().host()) : Range{0, 0}; range.count > 0) {
      std::memmove(At(Displacements(counts)[static_cast<size_t>(local)]), At(range.begin),
                   static_cast<size_t>(range.count * element()));
    }
    std::byte* const from = At(Displacements(counts)[static_cast<size_t>(local)]);
    if (auto gather = LocalAllGather(from, counts, buffer_.data())) stage.local.push_back(std::move(gather));
  }
  return stage;
}

absl::Status HierarchicalReduceScatter::Finish() {
  const int local = team().local_rank(), local_size = team().local_size();
  int64_t at = order_.begin(team().rank());
  if (local_size > team().rails()) {
    const int rail = local % team().rails();
    const auto begins = Displacements(order_.HostCounts(team().host(), local_size));
    at = begins[static_cast<size_t>(rail)] + at - order_.ForHost(rail, team().host()).begin;
  }
  const int64_t count = order_.count(team().rank());
  if (count == 0) return absl::OkStatus();
  std::memcpy(call().out.data, At(at), static_cast<size_t>(count * element()));
  ApplyResultScale(call().out.data, count);
  return absl::OkStatus();
}

HierarchicalAllGather::HierarchicalAllGather(std::shared_ptr<Team> team, const Call& call)
    : HierarchicalOperation(std::move(team), call, 3),
      order_(this->team(), CountsOf(call)),
      buffer_(static_cast<size_t>(order_.total() * element())) {}

HierarchicalAllGather::Stage HierarchicalAllGather::MakeStage(int index) {
  Stage stage;
  const int local = team().local_rank(), local_size = team().local_size();
  const bool on_rail = local < team().rails();
  if (index == 0 && local_size > team().rails()) {
    std::vector<int64_t> counts;
    int64_t total = 0;
    for (const int rank : team().on_host(team().host())) {
      counts.push_back(order_.count(rank));
      total += counts.back();
    }
    host_.resize(static_cast<size_t>(total * element()));
    stage.local.push_back(LocalAllGather(call().in.data, counts, host_.data()));
  } else if (index == 1) {
    TakeHostSegments();
    if (on_rail) {
      const Selection selection = team().Select(Collective::kAllGather, order_.total() * element(), team().rails());
      stage.network = Network(MakeSchedule(Collective::kAllGather, selection.algorithm, team().host(), team().hosts()),
                              team().Rail(local), BlocksOf(order_, local, team().hosts(), buffer_.data(), element()));
      stage.transfer = {Collective::kAllGather, selection.algorithm, order_.ForRail(local).count * element(),
                        team().hosts(), team().rails()};
    }
  } else if (index == 2) {
    std::byte* const own = on_rail ? At(order_.ForRail(local).begin) : buffer_.data();
    if (auto gather = LocalAllGather(own, order_.RailCounts(local_size), buffer_.data())) {
      stage.local.push_back(std::move(gather));
    }
  }
  return stage;
}

// Into their places in rail order: those of the host that are known here.
void HierarchicalAllGather::TakeHostSegments() {
  const auto place = [this](int rank, const void* from) {
    const auto bytes = static_cast<size_t>(order_.count(rank) * element());
    if (bytes > 0) std::memcpy(At(order_.begin(rank)), from, bytes);
  };
  if (host_.empty()) return place(team().rank(), call().in.data);
  const std::byte* from = host_.data();
  for (const int rank : team().on_host(team().host())) {
    place(rank, from);
    from += order_.count(rank) * element();
  }
}

absl::Status HierarchicalAllGather::Finish() {
  order_.Unpack(buffer_.data(), call().out.data, element());
  return absl::OkStatus();
}

}  // namespace gyre::internal
