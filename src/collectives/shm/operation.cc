#include "collectives/shm/operation.h"

#include <algorithm>
#include <cstring>
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
    case CallKind::kRefused: return "refused call";
  }
  return absl::StrCat("unknown operation ", signature.kind);
}

shm::Progress Operation::Poll() {
  if (state_ == State::kBefore && !Begin()) return shm::Progress::kDone;
  if (state_ == State::kEnded) return shm::Progress::kDone;
  for (bool moved = false;; moved = true) {
    if (!meeting().GathersSoon()) return moved ? shm::Progress::kSome : shm::Progress::kNone;
    const bool last = (round_ == 0 && !Agreed()) || Consume(round_) == Next::kEnd;
    meeting().Next();
    if (last) {
      if (state_ != State::kEnded) End();
      return shm::Progress::kDone;
    }
    ++round_;
    Post();
  }
}

bool Operation::Begin() {
  call_ = ++channel_.calls;
  if (group_.node().closed() || !group_.usable()) [[unlikely]]
    return RefuseToBegin();
  state_ = State::kPosted;
  Post();
  return true;
}

bool Operation::RefuseToBegin() {
  if (group_.node().closed()) {
    EndWith(absl::FailedPreconditionError("the runtime was shut down"));
  } else if (absl::Status broken = group_.status(); !broken.ok()) {
    EndWith(absl::FailedPreconditionError(absl::StrCat("the communicator is unusable: ", broken.message())));
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
  int other = 0;
  while (other < size() && meeting().slot(other).signature == signature_) ++other;
  if (other == size()) [[likely]]
    return true;
  // The first two that differ, so that every rank names the same ones.
  const shm::Signature first = meeting().slot(0).signature;
  other = 1;
  while (other < size() - 1 && meeting().slot(other).signature == first) ++other;
  const std::string one = CallOf(0), two = CallOf(other);
  status_ = absl::InvalidArgumentError(absl::StrCat(
      "ranks disagree about call ", call_, ": ", group_.RankName(Member(0)), " ", one, ", ",
      group_.RankName(Member(other)), " ", two, one == two ? "; their scales or their counts by rank differ" : ""));
  return false;
}

// "called allreduce(...)", or why it did not.
std::string Operation::CallOf(int channel_member) {
  shm::Slot& slot = meeting().slot(channel_member);
  if (slot.signature.kind != static_cast<uint8_t>(CallKind::kRefused)) {
    return absl::StrCat("called ", Describe(slot.signature));
  }
  const int64_t length = std::clamp<int64_t>(slot.signature.count, 0, GroupLayout::kWordsCapacity);
  const auto* text = reinterpret_cast<const char*>(slot.payload(length));
  return absl::StrCat("made a call that was refused (", absl::string_view(text, static_cast<size_t>(length)), ")");
}

std::string Operation::Context() const {
  return absl::StrCat(Describe(signature_), ", call ", call_);
}

bool Operation::Check(TimePoint now) {
  if (state_ == State::kEnded) return true;
  if (deadline_ == TimePoint{}) StartClock(now);
  if (state_ == State::kPosted && meeting().Gathered()) return false;  // it goes on
  if (group_.node().closed()) {
    // No last words: that this rank left, its peers see for themselves.
    if (state_ == State::kPosted) OnGivenUp();
    EndWith(absl::FailedPreconditionError("the runtime was shut down"));
    return true;
  }
  if (absl::Status broken = group_.status(); !broken.ok()) {  // by another operation of this rank
    if (state_ == State::kPosted) OnGivenUp();
    EndWith(absl::AbortedError(absl::StrCat(Context(), " was aborted with its communicator: ", broken.message())));
    return true;
  }
  if (FindGivenUp() || (state_ == State::kPosted && FindLost())) return true;
  return now >= deadline_ && FailLate();
}

// Whether another member has broken the group.
bool Operation::FindGivenUp() {
  const auto words = group_.FindLastWords();
  if (!words) return false;
  if (words->rank >= 0) group_.node().LearnLoss(words->rank, words->text);
  return Fail(absl::AbortedError(absl::StrCat(Context(), " was aborted: ", words->text)), *words);
}

// Whether a member that this round waits for is gone.
bool Operation::FindLost() {
  if (group_.node().losses() == 0) return false;
  for (int m = 0; m < size(); ++m) {
    if (m == rank() || meeting().HasPosted(m)) continue;
    const auto loss = group_.node().LossOf(group_.ranks()[static_cast<size_t>(Member(m))]);
    if (!loss) continue;
    if (meeting().Gathered()) return false;  // it posted before it went
    return FailFor(*loss);
  }
  return false;
}

// Names what came first, and the loss that is in the way.
bool Operation::FailFor(const shm::Node::Loss& loss) {
  const shm::Node::Loss cause = group_.node().FirstLoss().value_or(loss);
  const std::string then = cause.rank == loss.rank ? "" : absl::StrCat("; then ", loss.text);
  return Fail(absl::AbortedError(absl::StrCat(Context(), " was aborted: ", cause.text, then)),
              {cause.in_order ? -1 : cause.rank, cause.text});
}

bool Operation::FailLate() {
  std::string reason = "it waited for earlier calls";
  if (state_ == State::kPosted) {
    const std::string missing = MissingRanks();
    if (missing.empty()) return false;  // the last one has come this very moment
    reason = absl::StrCat(missing, " did not come");
  }
  const std::string text = absl::StrFormat("%s timed out after %.3g s: %s", Context(),
                                           std::chrono::duration<double>(timeout_).count(), reason);
  return Fail(absl::DeadlineExceededError(text),
              {-1, absl::StrCat(group_.RankName(group_.rank()), " gave the communicator up: ", text)});
}

std::string Operation::MissingRanks() {
  std::string names;
  for (int m = 0; m < size(); ++m) {
    if (!meeting().HasPosted(m)) absl::StrAppend(&names, names.empty() ? "" : ", ", group_.RankName(Member(m)));
  }
  return names;
}

bool Operation::Fail(absl::Status status, const shm::LastWords::Content& words) {
  group_.Break(status, words);
  if (state_ == State::kPosted) OnGivenUp();
  EndWith(std::move(status));
  return true;
}

Operation::Next Operation::GiveUp(absl::Status status) {
  const std::string text(status.message());
  Fail(std::move(status), {-1, absl::StrCat(group_.RankName(group_.rank()), " gave the communicator up: ", text)});
  return Next::kEnd;
}

Operation::Next Operation::GiveUpOn(int member) {
  if (!FindGivenUp()) FailFor(group_.node().DepartureOf(group_.ranks()[static_cast<size_t>(member)]));
  return Next::kEnd;
}

void Operation::EndWith(absl::Status status) {
  status_ = std::move(status);
  End();
}

void Operation::End() {
  state_ = State::kEnded;
  OnEnd();
}

RefusedCall::RefusedCall(Group& group, Channel& channel, absl::Status why, std::chrono::milliseconds timeout)
    : Operation(group, channel,
                {.kind = static_cast<uint8_t>(CallKind::kRefused),
                 .count = std::min<int64_t>(static_cast<int64_t>(why.message().size()), GroupLayout::kWordsCapacity)},
                timeout),
      why_(std::move(why)) {}

void RefusedCall::Publish(int64_t) {
  const int64_t bytes = std::min<int64_t>(static_cast<int64_t>(why_.message().size()), GroupLayout::kWordsCapacity);
  std::memcpy(meeting().mine().payload(bytes), why_.message().data(), static_cast<size_t>(bytes));
}

}  // namespace gyre::internal
