#include "collectives/members.h"

#include "absl/strings/str_cat.h"

namespace gyre::internal {

int Members::job_rank(int rank) const {
  return team != nullptr ? team->place(rank).rank : group->ranks()[static_cast<size_t>(rank)];
}

std::optional<Members::Cause> Members::FindCause(const std::string& context) const {
  shm::Node& node = group->node();
  auto words = group->OwnLastWords();
  if (!words) words = group->FindLastWords();
  if (words) {
    if (words->rank >= 0) node.LearnLoss(words->rank, words->text);
    return Cause{absl::Status(words->code, absl::StrCat(context, " was aborted: ", words->text)), *words};
  }
  if (node.losses() == 0) return std::nullopt;
  for (int rank = 0; rank < size(); ++rank) {
    const auto loss = node.LossOf(job_rank(rank));
    if (!loss || loss->left()) continue;  // who has left had done its part, or the deadline tells
    return Cause{absl::AbortedError(absl::StrCat(context, " was aborted: ", loss->text)), {loss->rank, loss->text}};
  }
  return std::nullopt;
}

absl::Status Members::Usable() const {
  if (group->node().closed()) return absl::FailedPreconditionError("the runtime was shut down");
  if (const absl::Status broken = group->status(); !broken.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("the communicator is unusable: ", broken.message()));
  }
  return absl::OkStatus();
}

void Members::Break(const Cause& cause) const {
  if (team != nullptr) {
    team->Break(cause.status, cause.words);
    team->MarkTold();
  } else {
    group->Break(cause.status, cause.words);
  }
}

void Members::GiveUp(const absl::Status& why) const {
  const std::string name = team != nullptr ? team->RankName(rank()) : group->RankName(rank());
  const std::string text = absl::StrCat(name, " gave the communicator up: ", why.message());
  Break({why, {-1, text, why.code()}});
}

}  // namespace gyre::internal
