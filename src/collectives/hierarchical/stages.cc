// What the stages of operations over hosts are made of.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "collectives/hierarchical/operation.h"
#include "collectives/hierarchical/scales.h"
#include "collectives/shm/allgather.h"
#include "collectives/shm/broadcast.h"
#include "collectives/shm/reduce_scatter.h"

namespace gyre::internal {

// Takes part of the result's scale along where the sum over all hosts could overflow without it.
std::optional<Call> HierarchicalOperation::CallToReduceScatter(const void* in, Counts counts, void* out) const {
  const DType dtype = call_.in.dtype;
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const HostScales scales = HostScalesOf(call_, team_->size());
  const Call local{.kind = CallKind::kReduceScatter,
                   .in = {in, total, dtype},
                   .out = {out, counts[static_cast<size_t>(team_->local_rank())], dtype},
                   .op = scales.plain.op,
                   .prescale = call_.prescale,
                   .postscale = scales.early,
                   .counts = counts,
                   .timeout = call_.timeout};
  if (team_->local_size() > 1) return local;
  if (in != out || local.prescale != 1.0 || local.postscale != 1.0) {
    device::Reduce(device::MakeReduction(dtype, local.op, local.prescale, local.postscale, 1), {&in, 1}, {&out, 1},
                   total);
  }
  return std::nullopt;
}

std::unique_ptr<Operation> HierarchicalOperation::LocalReduceScatter(const void* in, Counts counts, void* out) const {
  const auto local = CallToReduceScatter(in, counts, out);
  return local ? std::make_unique<ReduceScatter>(team_->local(), *local, signature_) : nullptr;
}

std::optional<Call> HierarchicalOperation::CallToAllGather(const void* in, Counts counts, void* out) const {
  const DType dtype = call_.in.dtype;
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (team_->local_size() == 1) {
    if (in != out && total > 0) std::memmove(out, in, static_cast<size_t>(total * DTypeSize(dtype)));
    return std::nullopt;
  }
  return Call{.kind = CallKind::kAllGather,
              .in = {in, counts[static_cast<size_t>(team_->local_rank())], dtype},
              .out = {out, total, dtype},
              .counts = counts,
              .timeout = call_.timeout};
}

std::unique_ptr<Operation> HierarchicalOperation::LocalAllGather(const void* in, Counts counts, void* out) const {
  const auto local = CallToAllGather(in, counts, out);
  return local ? std::make_unique<AllGather>(team_->local(), *local, signature_) : nullptr;
}

std::unique_ptr<Operation> HierarchicalOperation::LocalBroadcast(int local_root, void* data, int64_t count) const {
  if (team_->local_size() == 1) return nullptr;
  const TensorView view(data, count, call_.in.dtype);
  return std::make_unique<Broadcast>(team_->local(), team_->local().collective(), signature_, *call_.timeout,
                                     local_root, view, view);
}

std::unique_ptr<Operation> HierarchicalOperation::LocalBarrier() const {
  return LocalBroadcast(0, nullptr, 0);
}

std::unique_ptr<Executor> HierarchicalOperation::Network(const Schedule& schedule, std::span<const int> ranks,
                                                         std::span<const MutableBytes> blocks,
                                                         std::span<const Bytes> sources) const {
  return Network(schedule, ranks, blocks, sources, team_->streams(), team_->id(), number_, PlainReduction());
}

std::unique_ptr<Executor> HierarchicalOperation::Network(const Schedule& schedule, std::span<const int> ranks,
                                                         std::span<const MutableBytes> blocks,
                                                         std::span<const Bytes> sources, Streams& streams,
                                                         uint64_t channel, uint64_t number,
                                                         const device::Reduction& reduction) const {
  std::unique_ptr<Executor> executor = call_.kind == CallKind::kMessage ? nullptr : team_->TakeExecutor();
  ExecutorPlan plan = executor != nullptr ? executor->Release() : ExecutorPlan();
  plan.schedule = schedule;
  plan.ranks.clear();
  plan.names.resize(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    plan.ranks.push_back(team_->place(ranks[i]).rank);
    plan.names[i] = team_->RankName(ranks[i]);
  }
  plan.self = static_cast<int>(std::ranges::find(ranks, team_->rank()) - ranks.begin());
  plan.blocks.assign(blocks.begin(), blocks.end());
  plan.sources.assign(sources.begin(), sources.end());
  plan.reduction = reduction;
  plan.channel = channel;
  plan.call = number;
  plan.signature = signature_;
  plan.checksum = team_->checksum();
  if (executor == nullptr) return std::make_unique<Executor>(streams, std::move(plan));
  executor->Restart(streams, std::move(plan));
  return executor;
}

bool HierarchicalOperation::OnlyCopies() const {
  return team_->local_size() == 1 && call_.prescale == 1.0 && HostScalesOf(call_, team_->size()).early == 1.0;
}

device::Reduction HierarchicalOperation::PlainReduction() const {
  return HostScalesOf(call_, team_->size()).plain;
}

void HierarchicalOperation::ApplyResultScale(void* data, int64_t count) const {
  const HostScales scales = HostScalesOf(call_, team_->size());
  if (!scales.finishes()) return;
  const void* const source = data;
  device::Reduce(scales.rest, {&source, 1}, {&data, 1}, count);
}

}  // namespace gyre::internal
