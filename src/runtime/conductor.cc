#include "runtime/conductor.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/members.h"

namespace gyre::internal {

namespace {

// In a frozen order, how long an operation is kept for the one before it, which its rank may never submit. And how long
// rank 0 keeps an end to itself until the others have been told.
constexpr std::chrono::milliseconds kHold{100};

// What ranks that live need to take note of one that leaves.
constexpr std::chrono::seconds kFarewell{1};

// Whether the decision ends operations by itself. A deadline's end is late already.
bool EndsWithoutCall(const Decision& decision) {
  const bool fails = decision.kind == DecisionKind::kFail && decision.code != absl::StatusCode::kDeadlineExceeded;
  return fails || decision.kind == DecisionKind::kJoined || decision.kind == DecisionKind::kLeft;
}

}  // namespace

class Conductor::Handle final : public Pollable {
 public:
  explicit Handle(size_t parts, int* value = nullptr) : left_(parts), value_(value) {}

  // What it ends with in place of kInvalidArgument: this rank knows better what was wrong with its own arguments.
  void SetRefusal(const absl::Status& refusal) { refusal_ = refusal; }

  // One part has ended. True if that was the last one.
  bool EndPart(const absl::Status& status, int value) {
    if (status_.ok()) status_ = absl::IsInvalidArgument(status) && !refusal_.ok() ? refusal_ : status;
    if (value_ != nullptr && status.ok()) *value_ = value;
    if (--left_ > 0) return false;
    MarkDone();
    return true;
  }
  void EndAll(const absl::Status& status) {
    left_ = 1;
    EndPart(status, -1);
  }

  shm::Progress Poll() override { return done() ? shm::Progress::kDone : shm::Progress::kNone; }
  bool Check(TimePoint) override { return done(); }
  void StartClock(TimePoint) override {}
  TimePoint deadline() const override { return TimePoint::max(); }

 private:
  size_t left_;
  int* const value_;
  absl::Status refusal_;
};

Conductor::Conductor(std::unique_ptr<Communicator> communicator, std::shared_ptr<CommunicatorState> state)
    : communicator_(std::move(communicator)),
      state_(std::move(state)),
      rank_(communicator_->rank()),
      negotiator_(rank_, kHold),
      links_(static_cast<size_t>(communicator_->size())),
      runner_(*communicator_) {
  if (rank_ == 0) coordinator_.emplace(communicator_->size());
  for (int peer = 0; peer < communicator_->size(); ++peer) {
    const bool talks = peer != rank_ && (peer == 0 || rank_ == 0);
    if (talks) links_[static_cast<size_t>(peer)] = std::make_unique<MessageLink>(*communicator_, peer);
  }
}

void Conductor::Begin() {
  for (const auto& link : links_) {
    if (link != nullptr) link->Listen();
  }
  state_->runtime().progress()->Start(shared_from_this(), lane_, shared_from_this());
}

// --- Any thread ---

Work Conductor::Submit(std::vector<NamedRequest> requests, const absl::Status& refusal,
                       std::shared_ptr<NamedMarks> marks) {
  auto handle = std::make_shared<Handle>(requests.size());
  handle->SetRefusal(refusal);
  return Ask({.requests = std::move(requests), .time = std::chrono::steady_clock::now(), .handle = std::move(handle)},
             std::move(marks));
}

Work Conductor::Join(int* last_rank) {
  return Ask({.requests = {}, .time = {}, .handle = std::make_shared<Handle>(1, last_rank)}, nullptr);
}

Work Conductor::Ask(Wish wish, std::shared_ptr<NamedMarks> marks) {
  const auto& progress = state_->runtime().progress();
  Work work(wish.handle, progress, std::move(marks));
  if (const absl::Status forked = process().Check(); !forked.ok()) {
    wish.handle->EndAll(forked);
    return work;
  }
  {
    std::lock_guard lock(mutex_);
    if (!over_.ok()) {
      wish.handle->EndAll(
          absl::FailedPreconditionError(absl::StrCat("named operations have ended: ", over_.message())));
      return work;
    }
    wishes_.push_back(std::move(wish));
    asked_.store(true);
  }
  Nudge();
  return work;
}

void Conductor::Leave() {
  const auto& progress = state_->runtime().progress();
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
    leave_by_ = std::chrono::steady_clock::now() + kFarewell;
    asked_.store(true);
  }
  Nudge();
  progress->Wait(*this);
  std::unique_ptr<NamedGpu> gone;  // by this thread, for its end may have to wait
  std::lock_guard lock(mutex_);
  gone.swap(gpu_);
}

// Again where another thread has asked while this one drove, and so could not do it itself.
void Conductor::Nudge() {
  while (asked_.load() && state_->runtime().progress()->Nudge(lane_)) continue;
}

NamedStatistics Conductor::statistics() const {
  std::lock_guard lock(mutex_);
  return statistics_;
}

// --- Going on ---

shm::Progress Conductor::Poll() {
  const bool moved = Advance();
  if (Drained()) return shm::Progress::kDone;
  return moved ? shm::Progress::kSome : shm::Progress::kNone;
}

bool Conductor::Check(TimePoint now) {
  if (state_->runtime().node()->closed()) GiveUp(absl::FailedPreconditionError("the runtime was shut down"));
  {
    std::lock_guard lock(mutex_);
    if (leaving_ && now >= leave_by_ && !broken_) asked_.store(true);
  }
  if (coordinator_) {
    coordinator_->Tick(now);
    for (const std::string& late : coordinator_->TakeWarnings()) state_->runtime().logger().Warn(late);
  }
  negotiator_.Tick(now);
  Advance();
  FindDeadline();
  return Drained();
}

bool Conductor::Advance() {
  bool moved_at_all = false;
  for (bool moved = true; moved; moved_at_all = moved_at_all || moved) {
    moved = asked_.load() && TakeWishes();
    moved = Receive() || moved;
    moved = DriveCall() || moved;
    moved = Talk() || moved;
    moved = Finish() || moved;
  }
  if (moved_at_all) Publish();
  return moved_at_all;
}

bool Conductor::TakeWishes() {
  std::vector<Wish> wishes;
  bool leaving = false, too_late = false;
  {
    std::lock_guard lock(mutex_);
    wishes.swap(wishes_);
    leaving = leaving_;
    too_late = leaving_ && std::chrono::steady_clock::now() >= leave_by_;
    asked_.store(false);
  }
  for (Wish& wish : wishes) Accept(wish);
  if (leaving) negotiator_.Leave();
  if (too_late) GiveUp(absl::FailedPreconditionError("this rank's named operations were destroyed"));
  return !wishes.empty() || leaving;
}

void Conductor::Accept(Wish& wish) {
  absl::Status status;
  if (wish.requests.empty()) {
    const uint64_t ticket = ++last_ticket_;
    status = negotiator_.Join(ticket);
    if (status.ok()) operations_[ticket] = {.buffers = {}, .handle = wish.handle};
  } else {
    std::vector<Submission> submissions;
    for (const NamedRequest& request : wish.requests) {
      submissions.push_back(
          {last_ticket_ + 1 + submissions.size(), request.name, request.signature, Saturated(request.buffers.timeout)});
    }
    status = negotiator_.Submit(std::move(submissions), wish.time);
    if (status.ok()) {
      for (NamedRequest& request : wish.requests) operations_[++last_ticket_] = {request.buffers, wish.handle};
    }
  }
  if (status.ok()) return;
  wish.handle->EndAll(status);
  RingWaiters();
}

// For threads that wait for what has ended.
void Conductor::RingWaiters() {
  state_->runtime().progress()->Ring();
}

// --- Messages ---

bool Conductor::Receive() {
  bool moved = false;
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    MessageLink* const link = links_[peer].get();
    if (link == nullptr) continue;
    auto message = link->Poll();
    if (!message) continue;
    moved = true;
    if (message->ok()) {
      OnMessage(static_cast<int>(peer), **message);
    } else if (!left_) {
      OnNoMessage(static_cast<int>(peer), message->status());
    }
  }
  return moved;
}

// A peer that has left in order breaks nothing, for others may still carry out operations that have ended there: named
// operations end on all ranks, after what was decided before.
void Conductor::OnNoMessage(int peer, const absl::Status& why) {
  const Members members{state_->group(), state_->team()};
  const auto loss = state_->runtime().node()->LossOf(members.job_rank(peer));
  if (!loss || !loss->left() || !members.Usable().ok()) return GiveUp(why);
  if (coordinator_) return coordinator_->Leave(peer, loss->text);
  left_ = true;
  negotiator_.OnDecisions({Decision{.kind = DecisionKind::kLeft, .ranks = {peer}, .text = loss->text}});
}

void Conductor::OnMessage(int peer, const std::string& bytes) {
  if (rank_ == 0) {
    const auto report = DecodeReport(bytes);
    if (!report.ok()) return GiveUp(report.status());
    if (!report->goodbye) LinkTo(peer)->Listen();
    const absl::Status status = coordinator_->OnReport(peer, *report, std::chrono::steady_clock::now());
    if (!status.ok()) GiveUp(status);
    return;
  }
  auto decisions = DecodeDecisions(bytes);
  if (!decisions.ok()) return GiveUp(decisions.status());
  left_ = std::ranges::any_of(*decisions, [](const Decision& one) { return one.kind == DecisionKind::kLeft; });
  if (left_) {
    SendTo(0, Encode(Report{.goodbye = true}));
  } else {
    LinkTo(0)->Listen();
  }
  negotiator_.OnDecisions(*std::move(decisions));
}

bool Conductor::Talk() {
  bool moved = FollowHeld();
  if (negotiator_.may_report() && !left_) {
    const TimePoint now = std::chrono::steady_clock::now();
    if (auto report = negotiator_.TakeReport(now)) {
      moved = true;
      if (rank_ != 0) {
        SendTo(0, Encode(*report));
      } else if (const absl::Status status = coordinator_->OnReport(0, *report, now); !status.ok()) {
        GiveUp(status);
      }
    }
  }
  if (!coordinator_ || broken_) return moved;
  std::vector<Decision> decisions = coordinator_->Take();
  if (decisions.empty()) return moved;
  Deliver(std::move(decisions));
  return true;
}

void Conductor::Deliver(std::vector<Decision> decisions) {
  const std::string bytes = Encode(decisions);
  for (int peer = 1; peer < communicator_->size(); ++peer) SendTo(peer, bytes);
  left_ = left_ || std::ranges::any_of(decisions, [](const Decision& one) { return one.kind == DecisionKind::kLeft; });
  if (held_.empty()) held_until_ = std::chrono::steady_clock::now() + kHold;
  std::ranges::move(decisions, std::back_inserter(held_));
  FollowHeld();
}

// The program that learns of such an end may leave at once, so this rank follows when the others have been told, or
// after a while, for deadlines go on. A join has none. Decisions to run are told by the time that their call can end.
bool Conductor::FollowHeld() {
  if (held_.empty()) return false;
  const bool told = std::ranges::all_of(links_, [](const auto& link) { return link == nullptr || link->sent(); });
  if (!told && std::ranges::any_of(held_, EndsWithoutCall)) {
    const bool joined =
        std::ranges::any_of(held_, [](const Decision& one) { return one.kind == DecisionKind::kJoined; });
    if (joined || std::chrono::steady_clock::now() < held_until_) return false;
  }
  negotiator_.OnDecisions(std::exchange(held_, {}));
  return true;
}

void Conductor::SendTo(int peer, std::string bytes) {
  ++counted_.control_messages;
  LinkTo(peer)->Send(std::move(bytes));
}

// --- Calls ---

bool Conductor::DriveCall() {
  bool moved = false;
  if (const auto ended = runner_.Poll()) {
    moved = true;
    if (!negotiator_.over()) {
      const uint64_t frozen_before = negotiator_.frozen_calls();
      if (ended->ok()) counted_.operations += carried_;
      negotiator_.OnStepEnded(*ended);
      counted_.frozen_operations += static_cast<int64_t>(negotiator_.frozen_calls() - frozen_before);
    }
  }
  if (runner_.busy()) return moved;
  const NamedStep* const step = negotiator_.NextStep();
  if (negotiator_.generation() != generation_) {
    generation_ = negotiator_.generation();
    if (negotiator_.frozen()) ++counted_.freezes;
  }
  if (step == nullptr) return moved;
  carried_ = std::ssize(step->parts);
  std::vector<const NamedBuffers*> buffers;
  for (const NamedPart& part : step->parts) {
    if (const auto it = operations_.find(part.ticket); it != operations_.end()) buffers.push_back(&it->second.buffers);
  }
  runner_.Start(*step, std::move(buffers), gpu());
  return true;
}

// --- Ends ---

bool Conductor::Finish() {
  if (negotiator_.over() && !told_over_) {
    told_over_ = true;
    if (!left_) GiveUp(negotiator_.over_status());
    std::vector<Wish> wishes;
    {
      std::lock_guard lock(mutex_);
      over_ = negotiator_.over_status();
      wishes.swap(wishes_);
    }
    for (Wish& wish : wishes) Accept(wish);  // to be refused
  }
  std::vector<NamedEnd> ended = negotiator_.TakeEnded();
  const bool rested = !deferred_.empty() && !runner_.busy();
  const bool moved = !ended.empty() || rested;
  if (moved) Publish();  // before anybody can know that they have ended
  if (rested) {
    for (const NamedEnd& end : std::exchange(deferred_, {})) End(end);
  }
  for (NamedEnd& end : ended) {
    if (runner_.Carries(end.ticket)) {
      deferred_.push_back(std::move(end));
    } else {
      End(end);
    }
  }
  if (moved) RingWaiters();
  return moved;
}

void Conductor::End(const NamedEnd& end) {
  const auto item = operations_.extract(end.ticket);
  if (!item.empty()) item.mapped().handle->EndPart(end.status, end.value);
}

// After an error that concerns all: makes the communicator unusable, so that whatever is under way ends, here and on
// the other ranks. A shut-down breaks nothing: they see that this rank has left, and may still carry out operations
// that have ended here.
void Conductor::GiveUp(const absl::Status& status) {
  negotiator_.End(status);
  if (std::exchange(broken_, true) || state_->runtime().node()->closed()) return;
  const shm::LastWords::Content words{
      -1, absl::StrCat("rank ", rank_, " gave its named operations up: ", status.message())};
  if (state_->team() != nullptr) {
    state_->team()->Break(status, words);
  } else {
    state_->group()->Break(status, words);
  }
}

// Nothing goes on here, and nothing that was begun uses memory of this object or of the user's.
bool Conductor::Drained() const {
  return told_over_ && !runner_.busy() && deferred_.empty() &&
         std::ranges::all_of(links_, [](const auto& link) { return link == nullptr || link->idle(); });
}

void Conductor::Publish() {
  std::lock_guard lock(mutex_);
  counted_.agreements = runner_.agreements();
  if (counted_.last_deviation != negotiator_.last_deviation()) counted_.last_deviation = negotiator_.last_deviation();
  statistics_ = counted_;
}

void Conductor::FindDeadline() {
  TimePoint next = negotiator_.deadline();
  if (coordinator_) next = std::min(next, coordinator_->deadline());
  {
    std::lock_guard lock(mutex_);
    if (leaving_ && !broken_) next = std::min(next, leave_by_);
  }
  deadline_.store(next.time_since_epoch().count());
}

}  // namespace gyre::internal
