#include "collectives/shm/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace gyre::internal {

shm::Progress Operation::Poll() {
  if (state_ == State::kBefore && !Begin()) return shm::Progress::kDone;
  if (state_ == State::kEnded) return shm::Progress::kDone;
  if (!meeting().GathersSoon()) return shm::Progress::kNone;
  const bool agreed = round_ > 0 || amid_round_ || Agreed();
  const Next next = agreed ? Consume(round_) : Next::kEnd;
  amid_round_ = next == Next::kAgain;
  if (amid_round_) return shm::Progress::kSome;
  meeting().Next();
  if (next == Next::kEnd) {
    if (state_ != State::kEnded) End();
    return shm::Progress::kDone;
  }
  ++round_;
  if (next == Next::kFence) {
    meeting().Post();
  } else {
    Post();
  }
  return shm::Progress::kSome;
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
  while (other < size() && (other == rank() || meeting().slot(other).signature == signature_)) ++other;
  if (other == size()) [[likely]]
    return true;
  // The first two that differ, so that every rank names the same ones.
  const Signature first = meeting().slot(0).signature;
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
  const bool goes_on = state_ == State::kPosted && !amid_round_ && meeting().Gathered();
  return (!goes_on && FindCause()) || (now >= deadline_ && FailLate());
}

// Whether there is cause to end other than the time, and if so ends.
bool Operation::FindCause() {
  if (group_.node().closed()) {
    // No last words: that this rank left, its peers see for themselves.
    if (state_ == State::kPosted) OnGivenUp();
    EndWith(absl::FailedPreconditionError("the runtime was shut down"));
    return true;
  }
  if (!group_.usable() && FindBroken()) return true;
  return state_ == State::kPosted && FindLost();
}

// Whether another operation of this rank has broken the group, or another member.
bool Operation::FindBroken() {
  absl::Status broken = group_.status();
  if (broken.ok()) return FindGivenUp();
  if (state_ == State::kPosted) OnGivenUp();
  EndWith(absl::AbortedError(absl::StrCat(Context(), " was aborted with its communicator: ", broken.message())));
  return true;
}

// Whether another member has broken the group.
bool Operation::FindGivenUp() {
  const auto words = group_.FindLastWords();
  if (!words) return false;
  if (words->rank >= 0) group_.node().LearnLoss(words->rank, words->text);
  return Fail(absl::Status(words->code, absl::StrCat(Context(), " was aborted: ", words->text)), *words);
}

// Whether a member that this round waits for is gone, or in the midst of one any that has not come to the next.
bool Operation::FindLost() {
  shm::Node& node = group_.node();
  if (node.losses() == 0) return false;
  const auto awaited = [this](int m) {
    return m != rank() && meeting().PostedBy(m) < meeting().round() + (amid_round_ ? 1 : 0);
  };
  for (int m = 0; m < size(); ++m) {
    if (!awaited(m)) continue;
    const auto loss = node.LossOf(group_.ranks()[static_cast<size_t>(Member(m))]);
    if (loss && awaited(m)) return FailFor(*loss);  // it did not post before it went
  }
  return false;
}

// Names what came first, and the loss that is in the way.
bool Operation::FailFor(const shm::Node::Loss& loss) {
  const shm::Node::Loss cause = group_.node().FirstLoss().value_or(loss);
  const std::string then = cause.rank == loss.rank ? "" : absl::StrCat("; then ", loss.text);
  absl::Status status = absl::AbortedError(absl::StrCat(Context(), " was aborted: ", cause.text, then));
  if (peers_may_leave_ && cause.left()) {
    OnGivenUp();
    EndWith(std::move(status));
    return true;
  }
  return Fail(std::move(status), {cause.end == shm::Node::Loss::End::kLost ? cause.rank : -1, cause.text});
}

bool Operation::FailLate() {
  std::string reason = "it waited for earlier calls";
  if (state_ == State::kPosted) {
    const std::string missing = Awaited();
    reason = missing.empty() ? "it was still at work" : absl::StrCat(missing, " did not come");
  }
  const std::string text = absl::StrFormat("%s timed out after %.3g s: %s", Context(),
                                           std::chrono::duration<double>(timeout_).count(), reason);
  return Fail(absl::DeadlineExceededError(text),
              {-1, absl::StrCat(group_.RankName(group_.rank()), " gave the communicator up: ", text)});
}

// Those furthest behind: where not all meet all in a round, others wait for them too. If one of them shows that it
// waits for a rank of another host, that rank is named in its place.
std::string Operation::Awaited() {
  std::vector<std::string> names;
  if (state_ != State::kPosted) return "";
  uint64_t last = meeting().round();
  for (int m = 0; m < size(); ++m) last = std::min(last, meeting().PostedBy(m));
  for (int m = 0; m < size() && last < meeting().round(); ++m) {
    if (meeting().PostedBy(m) != last) continue;
    std::string name = &channel_ == &group_.collective() ? group_.AwaitedBy(Member(m)) : "";
    if (name.empty()) name = group_.RankName(Member(m));
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  }
  return absl::StrJoin(names, ", ");
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

bool Operation::HasLeft(int member) const {
  return member != rank() && group_.block(Member(member)).left.load(std::memory_order_acquire) != 0;
}

int Operation::FirstGone() const {
  for (int m = 0; m < size(); ++m) {
    if (HasLeft(m)) return m;
  }
  return -1;
}

int Operation::FirstGone(std::span<const int> members) const {
  const auto gone = std::ranges::find_if(members, [this](int m) { return HasLeft(m); });
  return gone == members.end() ? -1 : *gone;
}

Operation::Next Operation::EndBroken() {
  FindCause();
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
