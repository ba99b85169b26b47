#include "runtime/sparse_split.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

void SparseSplit::Begin(const std::vector<int>& key, std::vector<std::span<float>> tensors) {
  tensors_ = std::move(tensors);
  begins_.assign(1, 0);
  for (const std::span<float> tensor : tensors_) begins_.push_back(begins_.back() + std::ssize(tensor));
  positions_.clear();
  spread_.clear();
  values_.clear();
  added_ = 0;
  cuts_ = &cuts_of_[key];
  if (cuts_->empty()) *cuts_ = compression::EvenCuts(elements(), ranks_);
}

absl::Status SparseSplit::Add(std::span<const float> piece, std::span<const std::byte> payload) {
  RETURN_IF_ERROR(decoder_.Decode(payload, std::ssize(piece)));
  const auto holds = [&](std::span<const float> tensor) {
    return piece.data() >= tensor.data() && piece.data() + piece.size() <= tensor.data() + tensor.size();
  };
  while (!holds(tensors_[added_])) ++added_;
  const auto base = static_cast<uint32_t>(begins_[added_] + (piece.data() - tensors_[added_].data()));
  const uint64_t whole = tensors_[added_].size();
  for (const uint32_t index : decoder_.indices()) {
    positions_.push_back(base + index);
    spread_.push_back(static_cast<uint32_t>(static_cast<uint64_t>(begins_[added_]) + index * whole / piece.size()));
  }
  values_.insert(values_.end(), decoder_.values().begin(), decoder_.values().end());
  return absl::OkStatus();
}

// The values have been rounded already: to encode them again takes nothing away.
void SparseSplit::Cut() {
  slices_.clear();
  slice_bytes_.clear();
  size_t done = 0;
  std::vector<uint32_t> local;
  for (int rank = 0; rank < ranks_; ++rank) {
    const int64_t begin = region(rank), end = region(rank + 1);
    const auto rest = std::span(positions_).subspan(done);
    const auto stop = std::ranges::lower_bound(rest, end, {}, [](uint32_t position) { return int64_t{position}; });
    const auto entries = static_cast<size_t>(stop - rest.begin());
    local.resize(entries);
    for (size_t i = 0; i < entries; ++i) local[i] = rest[i] - static_cast<uint32_t>(begin);
    EncodeSparse(local, std::span(values_).subspan(done, entries), end - begin, options_, payload_);
    done += entries;
    slices_.insert(slices_.end(), payload_.begin(), payload_.end());
    slice_bytes_.push_back(std::ssize(payload_));
  }
}

int64_t SparseSplit::ProposedCut(int rank) const {
  return compression::BalancedCut(spread_, elements(), rank, ranks_);
}

absl::Status SparseSplit::Sum(std::span<const std::byte> received, std::span<const int64_t> bytes, const Keep& keep) {
  region_sum_.Begin(region(rank_ + 1) - region(rank_));
  for (size_t rank = 0; rank < bytes.size(); ++rank) {
    const auto size = static_cast<size_t>(bytes[rank]);
    RETURN_IF_ERROR(Annotate(region_sum_.Add(received.first(size), scale_), absl::StrCat("from rank ", rank)));
    received = received.subspan(size);
  }
  region_sum_.Encode(sum_options_, sum_bytes_);
  if (sum_options_.values == ValueType::kF32 || scale_ == 0) return absl::OkStatus();
  size_t tensor = 0;
  for (size_t i = 0; i < region_sum_.sum().size(); ++i) {
    const float left = region_sum_.sum()[i];
    if (left == 0) continue;
    const int64_t position = region(rank_) + static_cast<int64_t>(i);
    while (position >= begins_[tensor + 1]) ++tensor;
    keep(tensor, static_cast<size_t>(position - begins_[tensor]), left / scale_);
  }
  return absl::OkStatus();
}

absl::Status SparseSplit::Deliver(std::span<const std::byte> sums, std::span<const int64_t> bytes,
                                  std::span<const int64_t> cuts) {
  size_t tensor = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto size = static_cast<size_t>(bytes[static_cast<size_t>(rank)]);
    RETURN_IF_ERROR(
        Annotate(reader_.Read(sums.first(size), region(rank + 1) - region(rank)), absl::StrCat("from rank ", rank)));
    sums = sums.subspan(size);
    for (size_t i = 0; i < reader_.positions().size(); ++i) {
      const int64_t position = region(rank) + int64_t{reader_.positions()[i]};
      while (position >= begins_[tensor + 1]) ++tensor;
      tensors_[tensor][static_cast<size_t>(position - begins_[tensor])] = reader_.values()[i];
    }
  }
  std::vector<int64_t> next(cuts.begin(), cuts.end());
  next.front() = 0;
  next.push_back(elements());
  if (!std::ranges::is_sorted(next)) return absl::DataLossError("regions of a bucket that are none");
  *cuts_ = std::move(next);
  return absl::OkStatus();
}

}  // namespace gyre::internal
