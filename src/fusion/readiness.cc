#include "fusion/readiness.h"

#include <algorithm>
#include <numeric>

namespace gyre::fusion {

Readiness::Readiness(int tensors)
    : tensors_(tensors),
      bucket_of_(static_cast<size_t>(tensors)),
      tickets_(static_cast<size_t>(tensors)),
      remaining_(tensors) {}

void Readiness::Follow(const Plan& plan) {
  members_.clear();
  for (int b = 0; const Bucket& bucket : plan.buckets) {
    for (const int tensor : bucket.tensors) bucket_of_[static_cast<size_t>(tensor)] = b;
    members_.push_back(bucket.tensors);
    ++b;
  }
  awaited_ = std::vector<std::atomic<int>>(members_.size());
  missing_ = std::vector<std::atomic<int>>(members_.size());
  Restart();
}

void Readiness::Restart() {
  for (auto& ticket : tickets_) ticket.store(0);
  for (size_t b = 0; b < members_.size(); ++b) {
    awaited_[b].store(static_cast<int>(members_[b].size()));
    missing_[b].store(static_cast<int>(members_[b].size()));
  }
  next_ticket_.store(1);
  remaining_.store(tensors_);
}

bool Readiness::Claim(int tensor) {
  int64_t unclaimed = 0;
  return tickets_[static_cast<size_t>(tensor)].compare_exchange_strong(unclaimed, next_ticket_.fetch_add(1));
}

std::span<const int> Readiness::Arrive(int tensor) {
  const auto bucket = static_cast<size_t>(bucket_of_[static_cast<size_t>(tensor)]);
  if (awaited_[bucket].fetch_sub(1) > 1) return {};
  return members_[bucket];
}

Readiness::Completion Readiness::Complete(int tensor) {
  const bool filled = missing_[static_cast<size_t>(bucket_of_[static_cast<size_t>(tensor)])].fetch_sub(1) == 1;
  const bool first_full = full(0);
  return {filled, first_full, remaining_.fetch_sub(1) == 1};
}

std::vector<int> Readiness::Absent(int bucket) const {
  std::vector<int> absent;
  for (const int tensor : members_[static_cast<size_t>(bucket)]) {
    if (!claimed(tensor)) absent.push_back(tensor);
  }
  return absent;
}

std::vector<int> Readiness::Order() const {
  std::vector<int> order(static_cast<size_t>(tensors_));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [this](int tensor) { return tickets_[static_cast<size_t>(tensor)].load(); });
  return order;
}

}  // namespace gyre::fusion
