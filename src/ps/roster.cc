#include "ps/roster.h"

#include <algorithm>

namespace gyre::ps {

Roster::Standing Roster::Hear(int worker, uint64_t incarnation, TimePoint now) {
  const auto found = entries_.find(worker);
  if (found == entries_.end()) return Standing::kStranger;
  Entry& entry = found->second;
  if (incarnation < entry.incarnation && guards_.fence) return Standing::kFenced;
  if (incarnation > entry.incarnation || !entry.member) return Standing::kStranger;
  entry.heard = now;
  return Standing::kMember;
}

void Roster::Know(int worker, uint64_t incarnation) {
  Entry& entry = entries_[worker];
  if (incarnation <= entry.incarnation) return;
  entry = Entry{.incarnation = incarnation};
  Count();
}

void Roster::Join(int worker, TimePoint now) {
  Entry& entry = entries_[worker];
  entry.member = true;
  entry.heard = now;
  Count();
}

void Roster::Excuse(Duration absence, TimePoint now) {
  for (auto& [_, entry] : entries_) entry.heard = std::min(entry.heard + absence, now);
}

void Roster::Doubt(int worker, uint64_t incarnation, TimePoint heard) {
  const auto found = entries_.find(worker);
  if (found == entries_.end() || found->second.incarnation != incarnation) return;
  found->second.heard = std::min(found->second.heard, heard);
}

std::vector<int> Roster::Expire(TimePoint now, Duration timeout) {
  std::vector<int> gone;
  if (!guards_.heartbeat) return gone;
  for (auto& [worker, entry] : entries_) {
    if (!entry.member || now - entry.heard < timeout) continue;
    entry.member = false;
    gone.push_back(worker);
  }
  if (!gone.empty()) Count();
  return gone;
}

TimePoint Roster::NextExpiry(Duration timeout) const {
  TimePoint next = TimePoint::max();
  if (!guards_.heartbeat) return next;
  for (const int worker : members_) next = std::min(next, entries_.at(worker).heard + timeout);
  return next;
}

bool Roster::IsMember(int worker) const {
  return std::ranges::binary_search(members_, worker);
}

uint64_t Roster::incarnation(int worker) const {
  const auto found = entries_.find(worker);
  return found == entries_.end() ? 0 : found->second.incarnation;
}

void Roster::Count() {
  members_.clear();
  for (const auto& [worker, entry] : entries_) {
    if (entry.member) members_.push_back(worker);
  }
}

}  // namespace gyre::ps
