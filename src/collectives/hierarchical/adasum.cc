#include "collectives/hierarchical/adasum.h"

#include "base/status.h"
#include "collectives/adasum.h"

namespace gyre::internal {

namespace {

// To the others still an allreduce by its signature: the ranks agree on that.
Call Gathering(Call call, AdasumVectors& vectors) {
  call.out = {vectors.bytes.data(), call.in.count * static_cast<int64_t>(vectors.counts.size()), call.in.dtype};
  call.counts = vectors.counts;
  return call;
}

}  // namespace

HierarchicalAdasum::HierarchicalAdasum(const std::shared_ptr<Team>& team, const Call& call)
    : AdasumVectors(call, team->size()), HierarchicalAllGather(team, Gathering(call, *this)), result_(call.out) {}

absl::Status HierarchicalAdasum::Finish() {
  RETURN_IF_ERROR(HierarchicalAllGather::Finish());
  const int64_t count = call().in.count;
  AdasumWork work(call().in.dtype, team().size(), count);
  for (int rank = 0; rank < team().size() && count > 0; ++rank) {
    work.Take(rank, 0, bytes.data() + rank * call().in.bytes(), count, call().prescale);
  }
  bytes = {};
  while (work.Combine()) {
  }
  work.Store(result_.data, call().postscale);
  return absl::OkStatus();
}

}  // namespace gyre::internal
