#include "collectives/hierarchical/relayed.h"

#include <cstring>
#include <utility>

#include "collectives/schedule/bruck.h"
#include "collectives/shm/alltoall.h"

namespace gyre::internal {

bool HierarchicalRelayedAllToAll::Suits(const Team& team, const Call& call) {
  return call.even && team.rails() == team.most_local();
}

HierarchicalRelayedAllToAll::HierarchicalRelayedAllToAll(std::shared_ptr<Team> team, const Call& call)
    : HierarchicalOperation(std::move(team), call, 2),
      piece_(static_cast<size_t>(call.in.bytes() / this->team().size())),
      sent_(static_cast<size_t>(call.in.bytes())),
      brought_(sent_.size()) {}

// When its turn has come: until then the call before it may write what is sent.
void HierarchicalRelayedAllToAll::TakePieces() {
  if (sent_.empty()) return;
  for (int rank = 0; rank < team().size(); ++rank) {
    const Place& to = team().place(rank);
    std::memcpy(sent_.data() + PieceAt(to.host, to.local),
                static_cast<const std::byte*>(call().in.data) + static_cast<size_t>(rank) * piece_, piece_);
  }
  const size_t own = PieceAt(team().host(), 0);
  std::memcpy(brought_.data() + own, sent_.data() + own, PieceAt(1, 0));
}

HierarchicalRelayedAllToAll::Stage HierarchicalRelayedAllToAll::MakeStage(int index) {
  Stage stage;
  if (index == 0) {
    TakePieces();
    stage.network = BetweenHosts();
  } else if (team().local_size() > 1) {
    stage.local.push_back(WithinHost());
  }
  return stage;
}

std::unique_ptr<Executor> HierarchicalRelayedAllToAll::BetweenHosts() {
  std::vector<MutableBytes> blocks;
  for (std::vector<std::byte>* const pieces : {&sent_, &brought_}) {
    for (int host = 0; host < team().hosts(); ++host) {
      blocks.push_back(MutableBytes(*pieces).subspan(PieceAt(host, 0), PieceAt(1, 0)));
    }
  }
  return Network(BruckAllToAll(team().host(), team().hosts()), team().Rail(team().local_rank()), blocks);
}

std::unique_ptr<Operation> HierarchicalRelayedAllToAll::WithinHost() {
  host_in_.resize(brought_.size());
  host_out_.resize(brought_.size());
  std::byte* to = host_in_.data();
  for (int local = 0; local < team().local_size(); ++local) {
    for (int host = 0; host < team().hosts() && piece_ > 0; ++host, to += piece_) {
      std::memcpy(to, brought_.data() + PieceAt(host, local), piece_);
    }
  }
  const std::vector<int64_t> counts(static_cast<size_t>(team().local_size()), call().in.count / team().local_size());
  const Call local{.kind = CallKind::kAllToAll,
                   .in = {host_in_.data(), call().in.count, call().in.dtype},
                   .out = {host_out_.data(), call().in.count, call().in.dtype},
                   .counts = counts,
                   .receive_counts = counts,
                   .timeout = call().timeout};
  return std::make_unique<AllToAll>(team().local(), local, signature());
}

absl::Status HierarchicalRelayedAllToAll::Finish() {
  const bool alone = team().local_size() == 1;
  for (int rank = 0; rank < team().size() && piece_ > 0; ++rank) {
    const Place& from = team().place(rank);
    const size_t within = static_cast<size_t>(from.local * team().hosts() + from.host) * piece_;
    std::memcpy(static_cast<std::byte*>(call().out.data) + static_cast<size_t>(rank) * piece_,
                alone ? brought_.data() + PieceAt(from.host, 0) : host_out_.data() + within, piece_);
  }
  return absl::OkStatus();
}

}  // namespace gyre::internal
