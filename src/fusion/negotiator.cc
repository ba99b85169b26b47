#include "fusion/negotiator.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "fusion/fused_calls.h"

namespace gyre::internal {

namespace {

std::string TensorNames(const NamedStep& step) {
  const std::string& first = step.parts.front().call.name;
  if (step.parts.size() == 1) return absl::StrCat("tensor '", first, "'");
  return absl::StrCat("tensors '", first, "' to '", step.parts.back().call.name, "' of a group");
}

}  // namespace

// --- What the program wants ---

absl::Status Negotiator::Submit(std::vector<Submission> submissions, TimePoint now) {
  if (over()) return absl::FailedPreconditionError(absl::StrCat("named operations have ended: ", over_.message()));
  if (join_ticket_ != 0) return absl::FailedPreconditionError("this rank has joined");
  for (size_t i = 0; i < submissions.size(); ++i) {
    const std::string& name = submissions[i].name;
    const auto same = [&](const Submission& other) { return other.name == name; };
    if (pending_.contains(name) ||
        std::any_of(submissions.begin(), submissions.begin() + static_cast<int64_t>(i), same))
      return absl::AlreadyExistsError(absl::StrCat("tensor '", name, "' is in flight already"));
  }
  for (Submission& submission : submissions) {
    if (frozen()) Notice(submission.name, submission.signature);
    pending_.emplace(std::move(submission.name), Pending{.ticket = submission.ticket,
                                                         .signature = submission.signature,
                                                         .deadline = DeadlineAfter(now, submission.timeout),
                                                         .stalls = DeadlineAfter(now, submission.timeout / 2)});
  }
  unreported_ = true;
  return absl::OkStatus();
}

// Whether an operation can wait for its place in the frozen order.
void Negotiator::Notice(const std::string& name, const NamedSignature& signature) {
  if (!unfit_.empty()) return;
  const auto place = places_.find(name);
  if (place == places_.end()) {
    unfit_ = Quoted(name, signature);
    return;
  }
  const NamedCall& call = order_[place->second];
  if (!Fits(signature, call)) unfit_ = absl::StrCat(Quoted(name, signature), ", which was ", Describe(call.signature));
}

bool Negotiator::Fits(const NamedSignature& signature, const NamedCall& call) const {
  return Agree(signature, call.signature) &&
         (call.counts.empty() || call.counts[static_cast<size_t>(rank_)] == signature.count);
}

absl::Status Negotiator::Join(uint64_t ticket) {
  if (over()) return absl::FailedPreconditionError(absl::StrCat("named operations have ended: ", over_.message()));
  if (join_ticket_ != 0) return absl::AlreadyExistsError("this rank has joined already");
  join_ticket_ = ticket;
  join_reported_ = false;
  unreported_ = true;
  if (unfit_.empty()) unfit_ = "a join";
  return absl::OkStatus();
}

void Negotiator::Leave() {
  leaving_ = true;
  unreported_ = true;
  if (unfit_.empty()) unfit_ = "its end";
}

// --- Messages ---

std::optional<Report> Negotiator::TakeReport(TimePoint now) {
  if (!unreported_ || over()) return std::nullopt;
  unreported_ = false;
  Report report{.generation = generation_, .position = position_};
  if (frozen()) {
    report.stalled = std::exchange(stall_untold_, false);
    report.deviation = deviation_;
    return report.stalled ? std::optional(report) : std::nullopt;  // what was submitted needs no words
  }
  std::vector<std::pair<uint64_t, std::string>> fresh;
  for (auto& [name, pending] : pending_) {
    if (!std::exchange(pending.reported, true)) fresh.emplace_back(pending.ticket, name);
  }
  std::ranges::sort(fresh);
  for (auto& [ticket, name] : fresh) {
    const Pending& pending = pending_.at(name);
    const auto left = std::chrono::ceil<std::chrono::microseconds>(std::max(pending.deadline - now, Duration(0)));
    report.announcements.push_back({std::move(name), pending.signature, left.count()});
  }
  report.join = join_ticket_ != 0 && !std::exchange(join_reported_, true);
  report.leave = leaving_ && !std::exchange(leave_reported_, true);
  const bool thawed = std::exchange(thawed_, false);
  if (report.announcements.empty() && !report.join && !report.leave && !thawed) return std::nullopt;
  if (thawed) {
    report.frozen_cycles = order_.empty() ? 0 : position_ / order_.size();
    report.deviation = std::exchange(deviation_, {});
  }
  return report;
}

void Negotiator::OnDecisions(std::vector<Decision> decisions) {
  for (Decision& decision : decisions) decisions_.push_back(std::move(decision));
}

// --- Calls ---

const NamedStep* Negotiator::NextStep() {
  if (running_ || over()) return nullptr;
  // Decisions of a later generation wait until this rank has found out that its own has ended.
  while (!decisions_.empty() && decisions_.front().generation <= generation_) {
    Decision decision = std::move(decisions_.front());
    decisions_.pop_front();
    running_ = Apply(decision);
    if (running_) return &*running_;
    if (over()) return nullptr;
  }
  if (frozen()) running_ = NextFrozen();
  return running_ ? &*running_ : nullptr;
}

std::optional<NamedStep> Negotiator::Apply(Decision& decision) {
  switch (decision.kind) {
    case DecisionKind::kRun: return Run(decision);
    case DecisionKind::kFail: Fail(decision); break;
    case DecisionKind::kFreeze: Freeze(decision); break;
    case DecisionKind::kDeviation: last_deviation_ = decision.text; break;
    case DecisionKind::kStall:
      if (decision.generation == generation_) stall_ = std::move(decision);
      break;
    case DecisionKind::kJoined:
      cycles_.Reset();
      ended_.push_back(
          {std::exchange(join_ticket_, 0), absl::OkStatus(), decision.ranks.empty() ? -1 : decision.ranks[0]});
      break;
    case DecisionKind::kLeft: {
      const int who = decision.ranks.empty() ? -1 : decision.ranks[0];
      const std::string how =
          decision.text.empty() ? absl::StrCat("rank ", who, " destroyed its named operations") : decision.text;
      End(who == rank_ ? absl::FailedPreconditionError("this rank's named operations were destroyed")
                       : absl::AbortedError(how));
      break;
    }
  }
  return std::nullopt;
}

// With those that travel in one call with it: a group's decisions come all at once.
std::optional<NamedStep> Negotiator::Run(Decision& decision) {
  NamedStep step{.absent = std::move(decision.ranks)};
  const auto add = [&](Decision& one) {
    return AddPart(step, {std::move(one.name), one.signature, std::move(one.counts)});
  };
  if (!add(decision)) return std::nullopt;
  int64_t end = 0;
  while (!decisions_.empty()) {
    const Decision& next = decisions_.front();
    const NamedSignature& last = step.parts.back().call.signature;
    end = NextPlace(end, last);
    if (next.kind != DecisionKind::kRun || next.ranks != step.absent || !Fuses(last, end, next.signature)) break;
    if (!add(decisions_.front())) return std::nullopt;
    decisions_.pop_front();
  }
  return step;
}

// False: all has ended, for this rank has not submitted what it was decided to run.
bool Negotiator::AddPart(NamedStep& step, NamedCall call) {
  if (cycles_.Begins(call.name)) cycles_.Close();
  if (step.absent.empty()) {
    cycles_.Add(call);
  } else {
    cycles_.Reset();
  }
  NamedPart part{.call = std::move(call)};
  if (std::ranges::find(step.absent, rank_) == step.absent.end()) {
    const auto it = pending_.find(part.call.name);
    if (it == pending_.end() || !it->second.reported) {
      End(absl::InternalError(
          absl::StrCat("it was decided to run '", part.call.name, "', which this rank did not submit")));
      return false;
    }
    part.ticket = it->second.ticket;
  }
  step.parts.push_back(std::move(part));
  return true;
}

void Negotiator::Fail(const Decision& decision) {
  cycles_.Reset();
  if (std::ranges::find(decision.ranks, rank_) != decision.ranks.end())
    EndOne(decision.name, absl::Status(decision.code, decision.text));
}

void Negotiator::OnStepEnded(const absl::Status& status) {
  if (over()) return;
  const NamedStep step = *std::exchange(running_, std::nullopt);
  const bool may_differ = step.kind != NamedStep::Kind::kRun;
  if (!status.ok() && !(may_differ && absl::IsInvalidArgument(status))) {
    return End(step.parts.empty() ? status : Annotate(status, TensorNames(step)));
  }
  if (may_differ && (!status.ok() || step.kind == NamedStep::Kind::kDeviate)) return Thaw();
  for (const NamedPart& part : step.parts) {
    if (part.ticket != 0) EndOne(part.call.name, absl::OkStatus());
  }
  if (!may_differ) return;
  position_ += step.parts.size();
  frozen_calls_ += step.parts.size();
  stall_reported_ = false;
  blocked_since_ = TimePoint::max();
}

void Negotiator::EndOne(const std::string& name, absl::Status status) {
  const auto it = pending_.find(name);
  if (it == pending_.end()) return;
  ended_.push_back({it->second.ticket, std::move(status)});
  pending_.erase(it);
}

void Negotiator::End(const absl::Status& status) {
  if (over()) return;
  over_ = status;
  decisions_.clear();
  if (join_ticket_ != 0) ended_.push_back({std::exchange(join_ticket_, 0), status});
  for (const auto& [name, pending] : pending_) ended_.push_back({pending.ticket, status});
  pending_.clear();
}

// --- The frozen order ---

void Negotiator::Freeze(const Decision& decision) {
  ++generation_;
  order_ = cycles_.current();
  cycles_.Reset();
  places_.clear();
  for (size_t i = 0; i < order_.size(); ++i) places_.emplace(order_[i].name, i);
  position_ = 0;
  unfit_.clear();
  stall_.reset();
  deviation_.clear();
  stall_reported_ = stall_untold_ = false;
  blocked_since_ = TimePoint::max();
  if (order_.empty() || HashOfOrder(order_) != decision.number) {
    End(absl::InternalError("the order to freeze differs between ranks"));
    return;
  }
  for (const auto& [name, pending] : pending_) Notice(name, pending.signature);
  if (join_ticket_ != 0) unfit_ = "a join";
  if (leaving_) unfit_ = "its end";
}

std::optional<NamedStep> Negotiator::NextFrozen() {
  const NamedCall& next = frontier();
  // A group that has begun is ended: all of it was submitted, here as elsewhere.
  if (!unfit_.empty() && next.signature.group_index == 0) return Deviate(absl::StrCat("brought ", unfit_));
  if (pending_.contains(next.name)) {
    NamedStep step{.kind = NamedStep::Kind::kFrozen, .parts = {}, .absent = {}};
    int64_t end = 0;
    for (size_t i = place(); i < order_.size(); ++i) {
      const NamedSignature& signature = order_[i].signature;
      const auto it = pending_.find(order_[i].name);
      if (it == pending_.end()) break;
      if (!step.parts.empty() && !Fuses(step.parts.back().call.signature, end, signature)) break;
      step.parts.push_back({.ticket = it->second.ticket, .call = order_[i]});
      end = NextPlace(end, signature);
    }
    return step;
  }
  if (!stall_ || stall_->number < position_) return std::nullopt;
  return Deviate(stall_->text.empty() ? "brought nothing in time" : "");
}

// `why`: empty where another rank has told why already. The others are told, for they may have nothing to call for.
NamedStep Negotiator::Deviate(const std::string& why) {
  const NamedCall& next = frontier();
  if (!why.empty()) {
    deviation_ =
        absl::StrCat("rank ", rank_, " ", why, " where the frozen order has ", Quoted(next.name, next.signature));
    stall_untold_ = unreported_ = true;
  }
  return {.kind = NamedStep::Kind::kDeviate, .parts = {}, .absent = {}};
}

void Negotiator::Thaw() {
  ++generation_;
  for (auto& [name, pending] : pending_) pending.reported = false;
  join_reported_ = leave_reported_ = false;
  unfit_.clear();
  stall_untold_ = false;
  thawed_ = unreported_ = true;
  cycles_.Reset();
}

// --- Time ---

void Negotiator::Tick(TimePoint now) {
  if (!frozen() || over()) return;
  if (running_) {
    if (running_->kind != NamedStep::Kind::kFrozen || stall_reported_) return;
    if (now >= NextStall()) stall_reported_ = stall_untold_ = unreported_ = true;
    return;
  }
  if (pending_.empty() || pending_.contains(frontier().name) || !unfit_.empty()) return;
  if (blocked_since_ == TimePoint::max()) blocked_since_ = now;
  if (now - blocked_since_ < hold_) return;
  const auto first = std::ranges::min_element(pending_, {}, [](const auto& item) { return item.second.ticket; });
  unfit_ = Quoted(first->first, first->second.signature);
}

TimePoint Negotiator::deadline() const {
  if (!frozen() || over()) return TimePoint::max();
  if (!running_) return blocked_since_ == TimePoint::max() ? blocked_since_ : blocked_since_ + hold_;
  const bool may_stall = running_->kind == NamedStep::Kind::kFrozen && !stall_reported_;
  return may_stall ? NextStall() : TimePoint::max();
}

TimePoint Negotiator::NextStall() const {
  TimePoint next = TimePoint::max();
  for (const auto& [name, pending] : pending_) next = std::min(next, pending.stalls);
  return next;
}

}  // namespace gyre::internal
