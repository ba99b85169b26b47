#include "collectives/shm/operation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace gyre::internal {

std::string Describe(const shm::Signature& signature) {
  const auto kind = static_cast<CallKind>(signature.kind);
  const std::string elements =
      absl::StrCat(ToAbsl(DTypeName(static_cast<DType>(signature.dtype))), ", ", signature.count, " elements");
  const std::string reduction = absl::StrCat(elements, ", ", ToAbsl(ReduceOpName(static_cast<ReduceOp>(signature.op))));
  switch (kind) {
    case CallKind::kAllReduce: return absl::StrCat("allreduce(", reduction, ")");
    case CallKind::kReduceScatter: return absl::StrCat("reduce_scatter(", reduction, ")");
    case CallKind::kAllGather: return absl::StrCat("allgather(", elements, ")");
    case CallKind::kBroadcast: return absl::StrCat("broadcast(", elements, ", root ", signature.root, ")");
    case CallKind::kReduce: return absl::StrCat("reduce(", reduction, ", root ", signature.root, ")");
    case CallKind::kAllToAll:
      return absl::StrCat("alltoall(", ToAbsl(DTypeName(static_cast<DType>(signature.dtype))), ")");
    case CallKind::kBarrier: return "barrier()";
    case CallKind::kMessage: return absl::StrCat("send/receive(", elements, ")");
  }
  return absl::StrCat("unknown operation ", signature.kind);
}

void Operation::Hold(std::shared_ptr<Group> group, TimePoint now) {
  held_ = std::move(group);
  deadline_ = DeadlineAfter(now, timeout_);
}

shm::Progress Operation::Poll() {
  if (state_ == State::kBefore && !Begin()) return shm::Progress::kDone;
  if (state_ == State::kEnded) return shm::Progress::kDone;
  for (bool moved = false;; moved = true) {
    if (!meeting().Gathered()) return moved ? shm::Progress::kSome : shm::Progress::kNone;
    const bool last = (round_ == 0 && !Agreed()) || Consume(round_) == Next::kEnd;
    meeting().Next();
    if (last) {
      state_ = State::kEnded;
      return shm::Progress::kDone;
    }
    ++round_;
    Post();
  }
}

bool Operation::Begin() {
  call_ = ++channel_.calls;
  if (group_.node().closed() || !group_.usable()) [[unlikely]] return RefuseToBegin();
  state_ = State::kPosted;
  Post();
  return true;
}

bool Operation::RefuseToBegin() {
  if (group_.node().closed()) {
    End(absl::FailedPreconditionError("the runtime was shut down"));
  } else if (absl::Status broken = group_.status(); !broken.ok()) {
    End(absl::FailedPreconditionError(absl::StrCat("the communicator is unusable: ", broken.message())));
  } else {
    FindGivenUp();  // a late rank must not write into buffers whose owners have stopped waiting for it
  }
  return false;
}

void Operation::Post() {
  shm::Slot& slot = meeting().mine();
  slot.signature = signature_;
  slot.offsets = {shm::kNowhere, shm::kNowhere};
  Publish(round_);
  meeting().Post();
}

// In the first round: whether all made the same call. All ranks see the same slots and so come to the same answer.
bool Operation::Agreed() {
  for (int m = 0; m < size(); ++m) {
    if (meeting().slot(m).signature == signature_) [[likely]] continue;
    // The first two that differ, so that every rank names the same ones.
    const shm::Signature first = meeting().slot(0).signature;
    int other = 1;
    while (other < size() - 1 && meeting().slot(other).signature == first) ++other;
    const shm::Signature second = meeting().slot(other).signature;
    std::string message = absl::StrCat("ranks disagree about call ", call_, ": ", group_.RankName(Member(0)), " called ",
                                       Describe(first), ", ", group_.RankName(Member(other)), " called ",
                                       Describe(second));
    if (Describe(first) == Describe(second)) message += "; their scales or their counts by rank differ";
    status_ = absl::InvalidArgumentError(message);
    return false;
  }
  return true;
}

int Operation::Member(int channel_member) const { return channel_.members[static_cast<size_t>(channel_member)]; }

std::string Operation::Context() const { return absl::StrCat(Describe(signature_), ", call ", call_); }

bool Operation::Check(TimePoint now) {
  if (state_ == State::kEnded) return true;
  if (state_ == State::kBefore) return false;
  if (deadline_ == TimePoint{}) deadline_ = DeadlineAfter(now, timeout_);
  if (meeting().Gathered()) return false;  // it goes on
  if (group_.node().closed()) {
    // No last words: that this rank left, its peers see for themselves.
    End(absl::FailedPreconditionError("the runtime was shut down"));
    return true;
  }
  if (FindGivenUp() || FindLost()) return true;
  if (now < deadline_) return false;
  return FailLate();
}

// Whether another member has broken the group.
bool Operation::FindGivenUp() {
  int by = 0;
  const auto words = group_.FindLastWords(&by);
  if (!words) return false;
  return Fail(absl::AbortedError(absl::StrCat(Context(), " was aborted: ", group_.RankName(by),
                                              " gave the communicator up: ", words->text)),
              by);
}

// Whether a member that this round waits for is gone.
bool Operation::FindLost() {
  if (group_.node().losses() == 0) return false;
  for (int m = 0; m < size(); ++m) {
    if (m == rank() || meeting().HasPosted(m)) continue;
    const auto loss = group_.node().LossOf(group_.ranks()[static_cast<size_t>(Member(m))]);
    if (!loss) continue;
    if (meeting().Gathered()) return false;  // it posted before it went
    const auto first = group_.node().FirstLoss();
    const bool consequence = first && first->rank != loss->rank;
    return Fail(absl::AbortedError(absl::StrCat(Context(), " was aborted: ", consequence ? first->text : loss->text,
                                                consequence ? absl::StrCat("; then ", loss->text) : "")),
                Member(m));
  }
  return false;
}

bool Operation::FailLate() {
  int first = 0;
  const std::string missing = MissingRanks(&first);
  return Fail(absl::DeadlineExceededError(
                  absl::StrFormat("%s timed out after %.3g s: %s did not come", Context(),
                                  std::chrono::duration<double>(timeout_).count(), missing)),
              first);
}

std::string Operation::MissingRanks(int* first) {
  std::string names;
  for (int m = size() - 1; m >= 0; --m) {
    if (meeting().HasPosted(m)) continue;
    *first = Member(m);
    names = absl::StrCat(group_.RankName(*first), names.empty() ? "" : ", ", names);
  }
  return names;
}

bool Operation::Fail(absl::Status status, int culprit) {
  group_.Break(status, culprit);
  End(std::move(status));
  return true;
}

void Operation::End(absl::Status status) {
  status_ = std::move(status);
  state_ = State::kEnded;
}

}  // namespace gyre::internal
