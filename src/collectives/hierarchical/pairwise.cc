#include "collectives/hierarchical/pairwise.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "collectives/schedule/dissemination.h"
#include "collectives/schedule/pairwise.h"
#include "collectives/shm/alltoall.h"

namespace gyre::internal {

namespace {

MutableBytes Part(const void* data, int64_t begin, int64_t count, int64_t element) {
  // Blocks that are only sent are not written (ExecutorPlan).
  auto* const bytes = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  return {bytes + begin * element, static_cast<size_t>(count * element)};
}

}  // namespace

HierarchicalAllToAll::HierarchicalAllToAll(std::shared_ptr<Team> team, const Call& call)
    : HierarchicalOperation(std::move(team), call, 1),
      sends_(call.counts.begin(), call.counts.end()),
      receives_(call.receive_counts.begin(), call.receive_counts.end()),
      send_begins_(Displacements(sends_)),
      receive_begins_(Displacements(receives_)),
      from_(static_cast<const std::byte*>(call.in.data)) {}

HierarchicalAllToAll::Stage HierarchicalAllToAll::MakeStage(int) {
  // Only now: until its turn came, the call before it may have written there.
  if (call().in.data == call().out.data && call().in.count > 0) {
    in_.assign(from_, from_ + call().in.bytes());
    from_ = in_.data();
  }
  Stage stage;
  stage.local.push_back(WithinHost());
  stage.network = BetweenHosts();
  return stage;
}

std::unique_ptr<Operation> HierarchicalAllToAll::WithinHost() {
  std::vector<int64_t> sends, receives;
  for (const int rank : team().on_host(team().host())) {
    const auto index = static_cast<size_t>(rank);
    const std::byte* const begin = from_ + send_begins_[index] * element();
    host_in_.insert(host_in_.end(), begin, begin + sends_[index] * element());
    sends.push_back(sends_[index]);
    receives.push_back(receives_[index]);
  }
  const int64_t sent = std::accumulate(sends.begin(), sends.end(), int64_t{0});
  const int64_t received = std::accumulate(receives.begin(), receives.end(), int64_t{0});
  host_out_.resize(static_cast<size_t>(received * element()));
  const Call local{.kind = CallKind::kAllToAll,
                   .in = {host_in_.data(), sent, call().in.dtype},
                   .out = {host_out_.data(), received, call().in.dtype},
                   .counts = sends,
                   .receive_counts = receives,
                   .timeout = call().timeout};
  return std::make_unique<AllToAll>(team().local(), local, signature());
}

std::unique_ptr<Executor> HierarchicalAllToAll::BetweenHosts() {
  const int size = team().size();
  Schedule schedule = PairwiseAllToAll(team().rank(), size);
  std::erase_if(schedule.steps, [&](const Step& step) { return team().place(step.peer).host == team().host(); });
  std::vector<MutableBytes> blocks;
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (size_t rank = 0; rank < sends_.size(); ++rank) {
    blocks.push_back(Part(from_, send_begins_[rank], sends_[rank], element()));
  }
  for (size_t rank = 0; rank < receives_.size(); ++rank) {
    blocks.push_back(Part(call().out.data, receive_begins_[rank], receives_[rank], element()));
  }
  return Network(schedule, ranks, blocks);
}

absl::Status HierarchicalAllToAll::Finish() {
  const std::byte* from = host_out_.data();
  for (const int rank : team().on_host(team().host())) {
    const auto index = static_cast<size_t>(rank);
    const int64_t bytes = receives_[index] * element();
    if (bytes == 0) continue;
    std::memcpy(static_cast<std::byte*>(call().out.data) + receive_begins_[index] * element(), from,
                static_cast<size_t>(bytes));
    from += bytes;
  }
  return absl::OkStatus();
}

HierarchicalMessage::HierarchicalMessage(std::shared_ptr<Team> team, const Call& call)
    : HierarchicalOperation(std::move(team), call, 1) {}

HierarchicalMessage::Stage HierarchicalMessage::MakeStage(int) {
  const bool sends = call().send;
  Team::MessageLane& lane = sends ? team().outgoing(call().peer) : team().incoming(call().peer);
  const Schedule schedule{1, {{sends ? Step::Kind::kSend : Step::Kind::kReceive, sends ? 1 : 0, 0}}};
  const std::vector<int> ranks =
      sends ? std::vector{team().rank(), call().peer} : std::vector{call().peer, team().rank()};
  const MutableBytes block = sends ? Part(call().in.data, 0, call().in.count, DTypeSize(call().in.dtype))
                                   : Part(call().out.data, 0, call().out.count, DTypeSize(call().out.dtype));
  Stage stage;
  stage.network =
      Network(schedule, ranks, {&block, 1}, {}, *lane.streams, lane.channel, ++lane.calls, PlainReduction());
  return stage;
}

HierarchicalBarrier::Stage HierarchicalBarrier::MakeStage(int index) {
  Stage stage;
  if (index == 1) {
    if (team().local_rank() == 0) {
      const MutableBytes nothing;
      stage.network = Network(DisseminationBarrier(team().host(), team().hosts()), team().Rail(0), {&nothing, 1});
    }
  } else if (auto local = LocalBarrier()) {
    stage.local.push_back(std::move(local));
  }
  return stage;
}

HierarchicalRefusal::Stage HierarchicalRefusal::MakeStage(int) {
  Stage stage;
  if (call().kind == CallKind::kMessage) return stage;  // its peer is on another host
  stage.local.push_back(
      std::make_unique<RefusedCall>(team().local(), team().local().collective(), why_, *call().timeout));
  return stage;
}

}  // namespace gyre::internal
