#include "collectives/host_calls.h"

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "collectives/hierarchical/operation.h"
#include "collectives/shm/make_operation.h"

namespace gyre::internal {

std::shared_ptr<void> HostCalls::owner() const {
  if (team_ != nullptr) return team_;
  return group_;
}

bool HostCalls::IsWithinHost(const Call& call) const {
  if (team_ == nullptr) return true;
  return call.kind == CallKind::kMessage && team_->place(call.peer).host == team_->host();
}

Lane& HostCalls::LaneOf(const Call& call) const {
  if (call.kind != CallKind::kMessage) return group_->collective().lane;  // a team's is its group's
  if (!IsWithinHost(call)) return call.send ? team_->outgoing(call.peer).lane : team_->incoming(call.peer).lane;
  const int peer = team_ != nullptr ? team_->place(call.peer).local : call.peer;
  return call.send ? group_->outgoing(peer).lane : group_->incoming(peer).lane;
}

std::shared_ptr<Pollable> HostCalls::Make(const Call& call) const {
  if (!IsWithinHost(call)) return MakeHierarchical(team_, call);
  Call local = call;
  if (team_ != nullptr) local.peer = team_->place(call.peer).local;
  std::shared_ptr<Operation> operation =
      MakeOperation(*group_, local, []<typename T>(std::type_identity<T>, auto&&... arguments) {
        return std::shared_ptr<Operation>(std::make_shared<T>(arguments...));
      });
  operation->Hold(group_);
  return operation;
}

std::shared_ptr<Pollable> HostCalls::MakeRefusal(const Call& call, const absl::Status& why) const {
  if (!IsWithinHost(call)) return MakeHierarchicalRefusal(team_, call, why);
  Call local = call;
  if (team_ != nullptr) local.peer = team_->place(call.peer).local;
  auto refusal = std::make_shared<RefusedCall>(*group_, ChannelOf(*group_, local), why, *call.timeout);
  refusal->Hold(group_);
  return refusal;
}

std::optional<absl::Status> HostCalls::FindCause(const std::string& context) const {
  if (group_->node().closed()) return absl::FailedPreconditionError("the runtime was shut down");
  // Another host has broken it, and this rank's calls have yet to say why.
  const bool untold = team_ != nullptr && !team_->told();
  auto words = untold ? group_->OwnLastWords() : std::nullopt;
  if (words) return EndBy(context, *words);
  if (const absl::Status broken = group_->status(); !broken.ok()) {
    return absl::AbortedError(absl::StrCat(context, " was aborted with its communicator: ", broken.message()));
  }
  words = group_->FindLastWords();
  if (!words) return std::nullopt;
  return EndBy(context, *words);
}

absl::Status HostCalls::EndBy(const std::string& context, const shm::LastWords::Content& words) const {
  if (words.rank >= 0) group_->node().LearnLoss(words.rank, words.text);
  absl::Status status(words.code, absl::StrCat(context, " was aborted: ", words.text));
  Break(status, words);
  return status;
}

absl::Status HostCalls::GiveUp(const absl::Status& why) const {
  Break(why, {-1, absl::StrCat("rank ", rank(), " gave the communicator up: ", why.message()), why.code()});
  return why;
}

void HostCalls::Break(const absl::Status& status, const shm::LastWords::Content& words) const {
  if (team_ != nullptr) {
    team_->Break(status, words);
    team_->MarkTold();
  } else {
    group_->Break(status, words);
  }
}

}  // namespace gyre::internal
