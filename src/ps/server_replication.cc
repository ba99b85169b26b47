// Server: what it does in a ring of servers (ps/replica.h).
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "ps/server.h"
#include "ps/state.h"

namespace gyre::ps {

// A first life has nothing behind it: only later ones ask what the next server has.
absl::Status Server::EnterRing() {
  const int servers = layout_.servers();
  if (servers < 2) return absl::InvalidArgumentError("a replica takes another server: there is one alone");
  const ReplicaOptions own{.epoch = options_.epoch,
                           .incarnation = options_.incarnation,
                           .timing = options_.timing,
                           .piece_bytes = options_.piece_bytes,
                           .guards = options_.guards};
  if (!shards_.empty()) {
    forwarder_.emplace(own, shards_.size(), clock_, *options_.ring);
    if (options_.incarnation > 1) recovery_.emplace(own, clock_, *options_.ring);
  }
  const int before = (options_.server + servers - 1) % servers;
  if (layout_.OfServer(before).empty()) return absl::OkStatus();
  // Create has taken the same options before, or does now.
  RETURN_IF_ERROR(MakeShards(before, MakePrivate).status());
  follower_.emplace(
      own, layout_.fingerprint(), [this, before] { return *MakeShards(before, MakePrivate); }, clock_, *options_.ring);
  return absl::OkStatus();
}

void Server::ReceiveFromServer(Side side, const Message& message) {
  if (message.epoch != options_.epoch && options_.guards.fence) return;
  if (message.to != 0 && message.to != options_.incarnation && options_.guards.fence) return;
  if (absl::IsAborted(disk_status_)) return;
  if (side == kBefore) {
    if (follower_) follower_->Receive(message, [this] { return HoldsPlace(); });
    return;
  }
  if (!forwarder_) return;
  if (recovery_) {
    if (message.kind == Kind::kPiece && recovery_->Take(message)) Recovered();
  } else if (message.kind == Kind::kFetch && founded_) {
    forwarder_->Fetch(message, [this] { return WholeState(); });
  } else if (message.kind == Kind::kConfirm) {
    Confirmed(message);
  }
}

void Server::ReachNext() {
  if (recovery_) {
    recovery_->Reach();
  } else if (forwarder_) {
    forwarder_->Reach();
  }
}

void Server::Forward(Message change) {
  if (forwarder_) forwarder_->Append(std::move(change));
}

void Server::ForwardRoster() {
  if (!forwarder_) return;
  std::string roster = EncodeRoster(roster_);
  if (roster == forwarded_roster_) return;
  forwarded_roster_ = std::move(roster);
  forwarder_->Append({.text = forwarded_roster_, .entry = Entry::kRoster});
}

// What the worker may be told of: all that is settled, once it is in two places.
uint64_t Server::Acknowledged(int slot, int worker) const {
  const uint64_t next = shards_[static_cast<size_t>(slot)].Next(worker);
  if (!forwarder_ || !options_.guards.confirm) return next;
  return std::min(next, forwarder_->Next(slot, worker));
}

Forwarder::State Server::WholeState() const {
  Forwarder::State state{EncodeWhole(layout_.fingerprint(), EncodeRoster(roster_), shards_)};
  for (const Shard& shard : shards_) state.next.push_back(shard.Nexts());
  return state;
}

void Server::Confirmed(const Message& confirm) {
  const Forwarder::Confirmed confirmed = forwarder_->Confirm(confirm);
  for (const auto& [slot, worker] : confirmed.pushes) {
    if (!roster_.IsMember(worker)) continue;
    Send(worker, {.kind = Kind::kAck, .slot = static_cast<uint32_t>(slot), .sequence = Acknowledged(slot, worker)});
  }
  if (!confirmed.begins) return;
  ready_ ? Pulse() : BecomeReady();
}

void Server::BecomeReady() {
  if (std::exchange(ready_, true)) return;
  for (const int worker : roster_.members()) Welcome(worker);
}

// Its copy has all that any worker was told of, and takes the snapshot's place, which may have more or less. Where
// there is none, or none that fits, the snapshot counts.
void Server::Recovered() {
  const std::optional<std::string> state = recovery_->state();
  recovery_.reset();
  // Whoever was a member has a time-out from now on.
  Roster roster(options_.guards);
  absl::StatusOr<std::vector<Shard>> shards = MakeShards(options_.server, options_.make);
  const auto restore = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::string_view members, RestoreWhole(*state, layout_.fingerprint(), *shards));
    return RestoreRoster(members, roster, clock_.Now());
  };
  if (!state || !shards.ok() || !restore().ok()) {
    for (const int worker : std::vector<int>(roster_.members())) roster_.Join(worker, clock_.Now());
    return;
  }
  roster_ = std::move(roster);
  shards_ = *std::move(shards);
  std::vector<std::map<int, uint64_t>> next;
  for (Shard& shard : shards_) {
    shard.Unsaved();
    next.push_back(shard.Nexts());
  }
  forwarder_->Adopt(std::move(next));
  recovered_ = founded_ = ready_ = changed_ = true;
}

// A copy that is given away must not be that of a process whose place another has taken: that one may have a newer one.
bool Server::HoldsPlace() {
  const absl::Status place = snapshots_.CheckPlace();
  if (absl::IsAborted(place)) disk_status_ = place;
  return !absl::IsAborted(place);
}

}  // namespace gyre::ps
