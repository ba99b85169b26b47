#include "fusion/coordinator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

std::string TensorName(const std::string& name, const NamedSignature& signature) {
  return absl::StrCat("tensor ", Quoted(name, signature));
}

// After how much of an operation's time it is worth a warning that it still waits.
constexpr int kPartOfTimeout = 4;
constexpr std::chrono::seconds kLongestPatience{10};

std::string Ranks(const std::vector<int32_t>& ranks) {
  return absl::StrJoin(ranks, ", ", [](std::string* out, int32_t rank) { absl::StrAppend(out, "rank ", rank); });
}

}  // namespace

Decision& Coordinator::Decide(DecisionKind kind) {
  decisions_.push_back({.kind = kind, .generation = generation_});
  return decisions_.back();
}

absl::Status Coordinator::OnReport(int from, const Report& report, TimePoint now) {
  if (left_ || report.goodbye) return absl::OkStatus();
  if (frozen() && report.generation == generation_ + 1) Thaw(report);
  if (report.generation < generation_) return absl::OkStatus();  // overtaken: the rank will see that for itself
  if (report.generation > generation_) {
    return absl::InternalError(
        absl::StrCat("rank ", from, " is in generation ", report.generation, " of ", generation_));
  }
  if (frozen()) {
    if (report.stalled) {
      Decision& stall = Decide(DecisionKind::kStall);
      stall.number = report.position;
      stall.text = report.deviation;
    }
  } else if (!report.deviation.empty()) {
    Decide(DecisionKind::kDeviation).text = report.deviation;
  }
  BrokenGroups broken;
  for (const Announcement& announcement : report.announcements) {
    if (report.generation != generation_) break;  // it has frozen meanwhile
    RETURN_IF_ERROR(Announce(from, announcement, now, broken));
  }
  if (report.join && report.generation == generation_) Join(from);
  if (report.leave && report.generation == generation_) Leave(from, "");
  FindDeadline();
  return absl::OkStatus();
}

void Coordinator::Leave(int rank, const std::string& why) {
  if (std::exchange(left_, true)) return;
  Decision& left = Decide(DecisionKind::kLeft);
  left.ranks = {rank};
  left.text = why;
  entries_.clear();
  debts_.clear();
  FindDeadline();
}

absl::Status Coordinator::Announce(int from, const Announcement& announcement, TimePoint now, BrokenGroups& broken) {
  const auto me = static_cast<size_t>(from);
  const std::string& name = announcement.name;
  if (announcement.signature.on_gpu) has_gpu_[me] = true;
  if (PayDebt(from, name)) return absl::OkStatus();
  auto [it, fresh] = entries_.try_emplace(name);
  Entry& entry = it->second;
  if (fresh) {
    entry = {.signature = announcement.signature, .first = from, .sequence = ++next_sequence_};
    entry.reported.resize(static_cast<size_t>(size_));
    entry.counts.resize(static_cast<size_t>(size_));
    entry.deadline = TimePoint::max();
    const std::chrono::microseconds patience = std::chrono::microseconds(announcement.left_us) / kPartOfTimeout;
    entry.warning = DeadlineAfter(now, std::min<std::chrono::microseconds>(patience, kLongestPatience));
  }
  if (entry.reported[me]) return absl::InternalError(absl::StrCat("rank ", from, " reported '", name, "' twice"));
  entry.reported[me] = true;
  entry.counts[me] = announcement.signature.count;
  entry.deadline = std::min(entry.deadline, DeadlineAfter(now, std::chrono::microseconds(announcement.left_us)));
  if (const auto group = broken.find(announcement.signature.group); group != broken.end()) {
    Fail(name, group->second);
  } else if (!Agree(entry.signature, announcement.signature)) {
    const absl::Status status = absl::InvalidArgumentError(
        absl::StrCat("tensor '", name, "' differs: rank ", entry.first, " submitted ", Describe(entry.signature),
                     ", rank ", from, " ", Describe(announcement.signature)));
    BreakGroup(announcement.signature.group, entry.signature.group, status, broken);
    Fail(name, status);
  } else if (Complete(entry)) {
    Resolve(name);
  }
  return absl::OkStatus();
}

// A rank has grouped a name otherwise than the others, who have it in the group `known`: what it has in that group
// cannot complete any more, neither what it has reported nor what is yet to come of its report.
void Coordinator::BreakGroup(uint64_t group, uint64_t known, const absl::Status& status, BrokenGroups& broken) {
  if (group == 0 || group == known) return;
  broken.emplace(group, status);
  std::vector<std::string> members;
  for (const auto& [name, entry] : entries_) {
    if (entry.signature.group == group) members.push_back(name);
  }
  for (const std::string& member : members) FailOne(member, status);
}

bool Coordinator::Complete(const Entry& entry) const {
  return Missing(entry, false).empty();
}

// Who has not reported it; those that have joined need not.
std::vector<int32_t> Coordinator::Missing(const Entry& entry, bool with_joined) const {
  std::vector<int32_t> ranks;
  for (size_t rank = 0; rank < joined_.size(); ++rank) {
    if (!entry.reported[rank] && (with_joined || !joined_[rank])) ranks.push_back(static_cast<int32_t>(rank));
  }
  return ranks;
}

// Its group in order, as far as it was reported: all of it, for a rank reports a group at once.
std::vector<std::string> Coordinator::MembersOf(const std::string& name) const {
  const uint64_t group = entries_.at(name).signature.group;
  if (group == 0) return {name};
  std::vector<std::pair<int, std::string>> members;
  for (const auto& [other, entry] : entries_) {
    if (entry.signature.group == group) members.emplace_back(entry.signature.group_index, other);
  }
  std::ranges::sort(members);
  std::vector<std::string> names;
  for (auto& member : members) names.push_back(std::move(member.second));
  return names;
}

// After an entry became complete.
void Coordinator::Resolve(const std::string& name) {
  const std::vector<std::string> names = MembersOf(name);
  if (static_cast<int>(names.size()) < entries_.at(name).signature.group_size) return;
  for (const std::string& member : names) {
    const Entry& entry = entries_.at(member);
    if (!Complete(entry)) return;
  }
  for (const std::string& member : names) {
    if (absl::Status why = WhyNotWithout(entries_.at(member)); !why.ok()) {
      return Fail(member, Annotate(why, TensorName(member, entries_.at(member).signature)));
    }
  }
  if (!Freeze(names[0])) Run(names);
}

// Some operations cannot do without the ranks that have joined.
absl::Status Coordinator::WhyNotWithout(const Entry& entry) const {
  const NamedSignature& signature = entry.signature;
  const std::vector<int32_t> absent = Missing(entry, true);
  if (absent.empty()) return absl::OkStatus();
  if (signature.kind == NamedKind::kBroadcast && std::ranges::find(absent, signature.root) != absent.end()) {
    return absl::InvalidArgumentError(absl::StrCat("its root, rank ", signature.root, ", has joined"));
  }
  for (const int32_t rank : absent) {
    if (!signature.on_gpu || has_gpu_[static_cast<size_t>(rank)]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", rank, " joined before it had brought a tensor on a GPU, and has none to contribute with"));
  }
  const bool sums = signature.op == ReduceOp::kSum || signature.op == ReduceOp::kAverage;
  if (signature.kind == NamedKind::kAllReduce && !sums && signature.prescale != 1.0) {
    return absl::InvalidArgumentError(absl::StrCat(Ranks(absent), " joined, and no number is neutral to a ",
                                                   ToAbsl(ReduceOpName(signature.op)), " after a prescale of ",
                                                   signature.prescale));
  }
  return absl::OkStatus();
}

void Coordinator::Run(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    Entry& entry = entries_.at(name);
    Decision& decision = Decide(DecisionKind::kRun);
    decision.name = name;
    decision.signature = entry.signature;
    decision.ranks = Missing(entry, true);
    if (entry.signature.kind == NamedKind::kAllGather) decision.counts = entry.counts;
    if (cycles_.Begins(name)) cycles_.Close();
    if (decision.ranks.empty()) {
      cycles_.Add({name, decision.signature, decision.counts});
    } else {
      cycles_.Reset();
    }
    entries_.erase(name);
  }
}

// Instead of running `name`, where it begins a cycle after enough identical ones. What was reported so far is matched
// by the frozen order.
bool Coordinator::Freeze(const std::string& name) {
  if (joined_count_ > 0 || !cycles_.Begins(name)) return false;
  const uint64_t hash = HashOfOrder(cycles_.current());
  if (cycles_.Close() < static_cast<int>(needed_cycles_)) return false;
  Decide(DecisionKind::kFreeze).number = hash;
  ++generation_;
  cycles_.Reset();
  entries_.clear();
  return true;
}

void Coordinator::Thaw(const Report& report) {
  ++generation_;
  const bool lasted = report.frozen_cycles >= needed_cycles_;
  needed_cycles_ = lasted ? kFirstCycles : std::min(2 * needed_cycles_, kMostCycles);
}

void Coordinator::Join(int rank) {
  if (joined_[static_cast<size_t>(rank)]) return;
  joined_[static_cast<size_t>(rank)] = true;
  ++joined_count_;
  ResolveAll();
  if (joined_count_ < size_) return;
  Decide(DecisionKind::kJoined).ranks = {rank};
  joined_.assign(joined_.size(), false);
  joined_count_ = 0;
  debts_.clear();  // all ranks are at the same place now
  cycles_.Reset();
}

// One rank fewer is waited for.
void Coordinator::ResolveAll() {
  std::vector<std::pair<uint64_t, std::string>> order;
  for (const auto& [name, entry] : entries_) order.emplace_back(entry.sequence, name);
  std::ranges::sort(order);
  for (const auto& [sequence, name] : order) {
    const auto it = entries_.find(name);
    if (it != entries_.end() && Complete(it->second)) Resolve(name);
  }
}

// With its group.
void Coordinator::Fail(const std::string& name, const absl::Status& status) {
  for (const std::string& member : MembersOf(name)) FailOne(member, status);
}

void Coordinator::FailOne(const std::string& name, const absl::Status& status) {
  const auto item = entries_.extract(name);
  const Entry& entry = item.mapped();
  std::vector<int32_t> reporters;
  for (size_t rank = 0; rank < entry.reported.size(); ++rank) {
    if (entry.reported[rank]) reporters.push_back(static_cast<int32_t>(rank));
  }
  DecideFailure(name, status, std::move(reporters));
  if (std::vector<int32_t> missing = Missing(entry, false); !missing.empty()) {
    debts_[name].push_back({status, std::move(missing)});
  }
}

void Coordinator::DecideFailure(const std::string& name, const absl::Status& status, std::vector<int32_t> ranks) {
  cycles_.Reset();  // as every rank does when it hears of it
  Decision& decision = Decide(DecisionKind::kFail);
  decision.name = name;
  decision.ranks = std::move(ranks);
  decision.code = status.code();
  decision.text = std::string(status.message());
}

// Whether what a rank reports failed before it came.
bool Coordinator::PayDebt(int from, const std::string& name) {
  const auto it = debts_.find(name);
  if (it == debts_.end()) return false;
  std::vector<Debt>& debts = it->second;
  const auto debt = std::ranges::find_if(
      debts, [&](const Debt& one) { return std::ranges::find(one.ranks, from) != one.ranks.end(); });
  if (debt == debts.end()) return false;
  DecideFailure(name, debt->status, {from});
  std::erase(debt->ranks, from);
  if (debt->ranks.empty()) debts.erase(debt);
  if (debts.empty()) debts_.erase(it);
  return true;
}

void Coordinator::Tick(TimePoint now) {
  if (now < deadline_) return;
  WarnOfLate(now);
  std::vector<std::pair<uint64_t, std::string>> late;
  for (const auto& [name, entry] : entries_) {
    if (entry.deadline <= now) late.emplace_back(entry.sequence, name);
  }
  std::ranges::sort(late);
  for (const auto& [sequence, name] : late) {
    if (entries_.contains(name)) Fail(name, absl::DeadlineExceededError(absl::StrCat(WhoIsMissing(name), " in time")));
  }
  FindDeadline();
}

void Coordinator::WarnOfLate(TimePoint now) {
  for (auto& [name, entry] : entries_) {
    if (entry.warning > now) continue;
    entry.warning = TimePoint::max();
    warnings_.push_back(absl::StrCat(WhoIsMissing(name), " yet"));
  }
}

// The ranks that did not submit it, or the first of its group that they did not.
std::string Coordinator::WhoIsMissing(const std::string& name) const {
  for (const std::string& member : MembersOf(name)) {
    const Entry& entry = entries_.at(member);
    const std::vector<int32_t> missing = Missing(entry, false);
    if (missing.empty()) continue;
    const std::string of_group = member == name ? "" : absl::StrCat(" of the group of '", name, "'");
    return absl::StrCat(TensorName(member, entry.signature), of_group, " was not submitted by ", Ranks(missing));
  }
  return absl::StrCat(TensorName(name, entries_.at(name).signature), " was not followed by the rest of its group");
}

void Coordinator::FindDeadline() {
  deadline_ = TimePoint::max();
  for (const auto& [name, entry] : entries_) {
    deadline_ = std::min({deadline_, entry.deadline, entry.warning});
  }
}

}  // namespace gyre::internal
