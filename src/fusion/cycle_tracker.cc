#include "fusion/cycle_tracker.h"

#include <utility>

namespace gyre::internal {

int CycleTracker::Close() {
  const bool same = identical_ > 0 && hash_ == last_hash_ && current_.size() == last_size_;
  identical_ = same ? identical_ + 1 : 1;
  last_hash_ = hash_;
  last_size_ = current_.size();
  current_.clear();
  names_.clear();
  hash_ = 0;
  return identical_;
}

void CycleTracker::Add(NamedCall call) {
  if (current_.size() == kLongest) Reset();
  hash_ += HashOf(call);  // a sum: the order does not matter
  names_.insert(call.name);
  current_.push_back(std::move(call));
}

void CycleTracker::Reset() {
  *this = CycleTracker();
}

uint64_t HashOfOrder(const std::vector<NamedCall>& calls) {
  uint64_t hash = calls.size();
  for (const NamedCall& call : calls) hash = (hash ^ HashOf(call)) * 0x100000001b3;
  return hash;
}

}  // namespace gyre::internal
