#include "fusion/negotiation_world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gyre {

using internal::NamedStep;
using std::chrono::microseconds;
using std::chrono::milliseconds;

NegotiationWorld::NegotiationWorld(std::vector<SimProgram> programs, uint64_t seed)
    : random_(seed), coordinator_(static_cast<int>(programs.size())) {
  now_ += std::chrono::hours(1);
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    ranks_.push_back(std::make_unique<SimRank>(static_cast<int>(rank), milliseconds(100)));
    ranks_.back()->program = std::move(programs[rank]);
  }
}

void NegotiationWorld::At(TimePoint time, std::function<void()> what) {
  events_.push({time, ++sequence_, std::move(what)});
}

Duration NegotiationWorld::Random(int at_most_us) {
  return microseconds(1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(at_most_us)));
}

void NegotiationWorld::Wrong(const std::string& what) {
  if (wrong_.empty()) wrong_ = what;
}

std::string NegotiationWorld::Run() {
  for (int rank = 0; rank < size(); ++rank) At(now_ + Random(100), [this, rank] { Drive(rank); });
  bool leaving = false;
  for (int64_t events = 0; wrong_.empty(); ++events) {
    const bool all_done = std::ranges::all_of(ranks_, [](const auto& rank) { return rank->done; });
    if (all_done && !std::exchange(leaving, all_done)) {
      finished_ = now_;
      finished_messages_ = messages_;
      // One of them or several.
      for (int rank = 0; rank < size(); ++rank) {
        if (random_() % 2 == 0 && rank != size() - 1) continue;
        ranks_[static_cast<size_t>(rank)]->negotiator.Leave();
        At(now_ + Random(50), [this, rank] { Drive(rank); });
      }
    }
    if (events_.empty()) break;
    if (events > 20'000'000) Wrong("it goes on and on");
    Event event = events_.top();
    events_.pop();
    now_ = event.time;
    event.what();
  }
  for (int rank = 0; rank < size(); ++rank) {
    const SimRank& one = *ranks_[static_cast<size_t>(rank)];
    if (!one.done) Wrong(absl::StrCat("rank ", rank, " hangs in step ", one.step));
    if (!one.negotiator.over()) Wrong(absl::StrCat("rank ", rank, " has not learned that others have left"));
    if (!one.flying.empty()) Wrong(absl::StrCat("rank ", rank, " still waits for ", one.flying.begin()->second.first));
  }
  return wrong_;
}

// All that a rank can do now.
void NegotiationWorld::Drive(int rank) {
  SimRank& one = *ranks_[static_cast<size_t>(rank)];
  one.negotiator.Tick(now_);
  if (rank == 0) coordinator_.Tick(now_);
  for (bool moved = true; moved && wrong_.empty();) {
    moved = Call(rank);
    moved = Talk(rank) || moved;
    for (internal::NamedEnd& end : one.negotiator.TakeEnded()) {
      moved = true;
      if (end.ticket == one.join_ticket) {
        one.join_value = end.value;
        one.joined = true;
        if (!end.status.ok()) Wrong(absl::StrCat("a join failed: ", end.status.message()));
        continue;
      }
      const auto it = one.flying.find(end.ticket);
      if (it == one.flying.end()) return Wrong("an operation ended that was not there");
      one.ends.push_back({it->second.first, it->second.second, std::move(end.status)});
      one.flying.erase(it);
    }
    moved = Advance(rank) || moved;
  }
  one.negotiator.Tick(now_);  // it may have begun to wait
  Wake(rank);
}

void NegotiationWorld::Wake(int rank) {
  SimRank& one = *ranks_[static_cast<size_t>(rank)];
  TimePoint next = one.negotiator.deadline();
  if (rank == 0) next = std::min(next, coordinator_.deadline());
  if (next == TimePoint::max() || (one.wakes > now_ && one.wakes <= next)) return;
  one.wakes = std::max(next, now_ + microseconds(1));
  At(one.wakes, [this, rank] { Drive(rank); });
}

// The program. True: it has asked for something.
bool NegotiationWorld::Advance(int rank) {
  SimRank& one = *ranks_[static_cast<size_t>(rank)];
  if (one.done || one.submitting || one.negotiator.over()) return false;
  if (one.step == one.program.steps.size()) {
    if (!one.flying.empty()) return false;
    if (one.program.joins && one.join_ticket == 0) {
      one.join_ticket = ++one.last_ticket;
      if (const auto status = one.negotiator.Join(one.join_ticket); !status.ok()) Wrong(std::string(status.message()));
    }
    one.done = !one.program.joins || one.joined;
    return !one.done && !std::exchange(one.asked, true);
  }
  const auto& step = one.program.steps[one.step];
  const bool waits = one.next == step.size() || (one.next > 0 && step[one.next - 1].waits);
  if (waits && !one.flying.empty()) return false;
  if (one.next == step.size()) {
    ++one.step;
    one.next = 0;
    return Advance(rank);
  }
  one.submitting = true;
  At(now_ + step[one.next].delay, [this, rank] { Submit(rank); });
  return false;
}

void NegotiationWorld::Submit(int rank) {
  SimRank& one = *ranks_[static_cast<size_t>(rank)];
  one.submitting = false;
  const SimSubmission& what = one.program.steps[one.step][one.next++];
  std::vector<internal::Submission> submissions;
  for (const auto& [name, signature] : what.operations) {
    submissions.push_back({++one.last_ticket, name, signature, what.timeout});
    one.flying[one.last_ticket] = {name, one.instances[name]++};
  }
  const auto twice = submissions;
  if (const auto status = one.negotiator.Submit(std::move(submissions), now_); !status.ok()) {
    Wrong(std::string(status.message()));
  }
  // A second one of the same name is refused, always.
  if (!absl::IsAlreadyExists(one.negotiator.Submit(twice, now_))) Wrong("a name was accepted twice");
  Drive(rank);
}

// Messages, as bytes, in order on each link.
bool NegotiationWorld::Talk(int rank) {
  SimRank& one = *ranks_[static_cast<size_t>(rank)];
  bool moved = false;
  if (const auto report = one.negotiator.TakeReport(now_)) {
    moved = true;
    ++messages_;
    frozen_messages_ += one.negotiator.frozen() && !report->stalled ? 1 : 0;
    one.report_arrival = std::max(one.report_arrival, now_ + Random(rank == 0 ? 1 : 50));
    At(one.report_arrival, [this, rank, bytes = Encode(*report)] {
      const auto decoded = internal::DecodeReport(bytes);
      if (!decoded.ok()) return Wrong("a report cannot be read");
      const auto status = coordinator_.OnReport(rank, *decoded, now_);
      if (!status.ok()) return Wrong(std::string(status.message()));
      Drive(0);
    });
  }
  if (rank != 0) return moved;
  const auto decisions = coordinator_.Take();
  if (decisions.empty()) return moved;
  for (int to = 0; to < size(); ++to) {
    SimRank& other = *ranks_[static_cast<size_t>(to)];
    ++messages_;
    other.decision_arrival = std::max(other.decision_arrival, now_ + Random(to == 0 ? 1 : 50));
    At(other.decision_arrival, [this, to, bytes = Encode(decisions)] {
      auto decoded = internal::DecodeDecisions(bytes);
      if (!decoded.ok()) return Wrong("a decision cannot be read");
      ranks_[static_cast<size_t>(to)]->negotiator.OnDecisions(*std::move(decoded));
      Drive(to);
    });
  }
  return true;
}

bool NegotiationWorld::Call(int rank) {
  SimRank& one = *ranks_[static_cast<size_t>(rank)];
  const NamedStep* const step = one.negotiator.NextStep();
  if (step == nullptr) return false;
  SimCall& call = calls_[one.calls];
  call.made.resize(ranks_.size());
  std::string what;
  for (const internal::NamedPart& part : step->parts) {
    absl::StrAppend(&what, " ", part.call.name);
    for (const int64_t count : part.call.counts) absl::StrAppend(&what, " ", count);
  }
  for (const int32_t absent : step->absent) absl::StrAppend(&what, " without ", absent);
  one.most_parts = std::max(one.most_parts, step->parts.size());
  call.made[static_cast<size_t>(rank)] = {step->kind, what};
  if (++call.count == ranks_.size()) Match(one.calls);
  ++one.calls;
  return true;
}

// All ranks have made it.
void NegotiationWorld::Match(size_t number) {
  const SimCall call = calls_.extract(number).mapped();
  const bool runs = call.made[0].first == NamedStep::Kind::kRun;
  bool same = true;
  for (const auto& [kind, what] : call.made) {
    if ((kind == NamedStep::Kind::kRun) != runs) return Wrong("ranks are in different generations");
    const bool both_frozen = kind != NamedStep::Kind::kDeviate && call.made[0].first != NamedStep::Kind::kDeviate;
    if (both_frozen && what != call.made[0].second) {
      return Wrong(absl::StrCat("ranks run different operations: ", what, " and ", call.made[0].second));
    }
    same = same && kind == call.made[0].first;
  }
  for (int rank = 0; rank < size(); ++rank) {
    At(now_ + Random(20), [this, rank, same] {
      ranks_[static_cast<size_t>(rank)]->negotiator.OnStepEnded(
          same ? absl::OkStatus() : absl::InvalidArgumentError("ranks disagree about a call"));
      Drive(rank);
    });
  }
}

}  // namespace gyre
