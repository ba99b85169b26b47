#include "runtime/sparse_split.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compression/global_choice.h"

namespace gyre::internal {

void SparseSplit::Begin(const std::vector<int>& key, std::vector<std::span<float>> tensors,
                        std::vector<int64_t> wanted) {
  tensors_ = std::move(tensors);
  wanted_ = std::move(wanted);
  begins_.assign(1, 0);
  for (const std::span<float> tensor : tensors_) begins_.push_back(begins_.back() + std::ssize(tensor));
  first_entries_.assign(tensors_.size(), 0);
  positions_.clear();
  spread_.clear();
  values_.clear();
  pieces_.clear();
  returned_.clear();
  added_ = piece_ = 0;
  cuts_ = &cuts_of_[key];
  if (cuts_->empty() || cuts_->back() != elements()) *cuts_ = compression::EvenCuts(elements(), ranks_);
}

std::vector<uint32_t> SparseSplit::SaveCuts() const {
  std::vector<uint32_t> words;
  for (const auto& [key, cuts] : cuts_of_) {
    words.push_back(static_cast<uint32_t>(key.size()));
    for (const int tensor : key) words.push_back(static_cast<uint32_t>(tensor));
    for (const int64_t cut : cuts) {
      words.push_back(static_cast<uint32_t>(cut));
      words.push_back(static_cast<uint32_t>(cut >> 32));
    }
  }
  return words;
}

bool SparseSplit::RestoreCuts(std::span<const uint32_t> words) {
  std::map<std::vector<int>, std::vector<int64_t>> restored;
  const size_t cut_words = 2 * (static_cast<size_t>(ranks_) + 1);
  while (!words.empty()) {
    const size_t tensors = words[0];
    if (words.size() - 1 < tensors || words.size() - 1 - tensors < cut_words) return false;
    std::vector<int> key;
    for (const uint32_t tensor : words.subspan(1, tensors)) key.push_back(static_cast<int>(tensor));
    words = words.subspan(1 + tensors);
    std::vector<int64_t>& cuts = restored[std::move(key)];
    for (size_t i = 0; i < cut_words; i += 2) {
      cuts.push_back(static_cast<int64_t>(words[i] | uint64_t{words[i + 1]} << 32));
    }
    if (cuts.front() != 0 || !std::ranges::is_sorted(cuts)) return false;
    words = words.subspan(cut_words);
  }
  cuts_of_ = std::move(restored);
  return true;
}

absl::Status SparseSplit::Add(std::span<const float> piece, std::span<const std::byte> payload) {
  RETURN_IF_ERROR(decoder_.Decode(payload, std::ssize(piece)));
  const auto holds = [&](std::span<const float> tensor) {
    return piece.data() >= tensor.data() && piece.data() + piece.size() <= tensor.data() + tensor.size();
  };
  while (!holds(tensors_[added_])) ++added_;
  first_entries_[added_] = positions_.size();
  const int64_t begin = begins_[added_] + (piece.data() - tensors_[added_].data());
  const auto base = static_cast<uint32_t>(begin);
  const uint64_t whole = tensors_[added_].size();
  pieces_.push_back({begin, begin + std::ssize(piece), added_});
  for (const uint32_t index : decoder_.indices()) {
    positions_.push_back(base + index);
    spread_.push_back(static_cast<uint32_t>(static_cast<uint64_t>(begins_[added_]) + index * whole / piece.size()));
  }
  values_.insert(values_.end(), decoder_.values().begin(), decoder_.values().end());
  return absl::OkStatus();
}

// Halves have been rounded already: to encode them again takes something away only where one is much smaller than
// another of the slice.
void SparseSplit::Cut() {
  slices_.clear();
  slice_bytes_.clear();
  rounded_ = values_;
  size_t done = 0;
  std::vector<uint32_t> local;
  for (int rank = 0; rank < ranks_; ++rank) {
    const int64_t begin = region(rank), end = region(rank + 1);
    const auto rest = std::span(positions_).subspan(done);
    const auto stop = std::ranges::lower_bound(rest, end, {}, [](uint32_t position) { return int64_t{position}; });
    const auto entries = static_cast<size_t>(stop - rest.begin());
    local.resize(entries);
    for (size_t i = 0; i < entries; ++i) local[i] = rest[i] - static_cast<uint32_t>(begin);
    EncodeSparse(local, std::span(rounded_).subspan(done, entries), end - begin, options_, payload_);
    done += entries;
    slices_.insert(slices_.end(), payload_.begin(), payload_.end());
    slice_bytes_.push_back(std::ssize(payload_));
  }
}

int64_t SparseSplit::ProposedCut(int rank) const {
  return compression::BalancedCut(spread_, elements(), rank, ranks_);
}

absl::Status SparseSplit::Sum(std::span<const std::byte> received, std::span<const int64_t> bytes) {
  region_sum_.Begin(region(rank_ + 1) - region(rank_));
  for (size_t rank = 0; rank < bytes.size(); ++rank) {
    const auto size = static_cast<size_t>(bytes[rank]);
    RETURN_IF_ERROR(Annotate(region_sum_.Add(received.first(size), scale_), absl::StrCat("from rank ", rank)));
    received = received.subspan(size);
  }
  return absl::OkStatus();
}

// Which elements of its region are of the tensor: from and to where in the region; none if they are the same.
std::pair<int64_t, int64_t> SparseSplit::shared(int rank, size_t tensor) const {
  const int64_t begin = region(rank), end = region(rank + 1);
  const int64_t from = std::clamp(begins_[tensor], begin, end), to = std::clamp(begins_[tensor + 1], begin, end);
  return {from - begin, to - begin};
}

std::vector<int64_t> SparseSplit::DescriptionBytes() const {
  std::vector<int64_t> bytes(static_cast<size_t>(ranks_), 0);
  for (int rank = 0; rank < ranks_; ++rank) {
    for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
      const auto [from, to] = shared(rank, tensor);
      if (from < to) bytes[static_cast<size_t>(rank)] += compression::kTailPoints * int64_t{sizeof(float)};
    }
  }
  return bytes;
}

int SparseSplit::Owners(size_t tensor) const {
  int owners = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto [from, to] = shared(rank, tensor);
    owners += from < to ? 1 : 0;
  }
  return owners;
}

std::vector<std::byte> SparseSplit::DescribeSums() {
  std::vector<float> magnitudes, points;
  for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    const auto [from, to] = shared(rank_, tensor);
    if (from == to) continue;
    magnitudes.clear();
    region_sum_.AppendMagnitudes(from, to, magnitudes);
    const auto own = compression::TailPoints(magnitudes, wanted_[tensor], Owners(tensor));
    points.insert(points.end(), own.begin(), own.end());
  }
  const auto bytes = std::as_bytes(std::span(points));
  return {bytes.begin(), bytes.end()};
}

void SparseSplit::ChooseSums(std::span<const std::byte> described) {
  std::vector<std::vector<float>> points(tensors_.size());
  constexpr size_t kBytes = compression::kTailPoints * sizeof(float);
  for (int rank = 0; rank < ranks_; ++rank) {
    for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
      const auto [from, to] = shared(rank, tensor);
      if (from == to) continue;
      auto& of_tensor = points[tensor];
      of_tensor.resize(of_tensor.size() + compression::kTailPoints);
      std::memcpy(of_tensor.data() + of_tensor.size() - compression::kTailPoints, described.data(), kBytes);
      described = described.subspan(kBytes);
    }
  }
  for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    const auto [from, to] = shared(rank_, tensor);
    if (from < to) region_sum_.Drop(from, to, compression::GlobalThreshold(points[tensor], wanted_[tensor]));
  }
}

// What was read last, which is the region of `rank`.
void SparseSplit::PlaceRegion(int rank, Place place) const {
  auto positions = reader_.positions();
  auto values = reader_.values();
  for (size_t tensor = 0; tensor < tensors_.size() && !positions.empty(); ++tensor) {
    const int64_t to = shared(rank, tensor).second;
    const auto stop = std::ranges::lower_bound(positions, to, {}, [](uint32_t position) { return int64_t{position}; });
    const auto entries = static_cast<size_t>(stop - positions.begin());
    if (entries == 0) continue;
    place({tensors_[tensor], positions.first(entries), begins_[tensor] - region(rank), values.first(entries)});
    positions = positions.subspan(entries);
    values = values.subspan(entries);
  }
}

// What rounds to 0 was not told, where the choice is global.
absl::Status SparseSplit::Deliver(std::span<const std::byte> sums, std::span<const int64_t> bytes,
                                  std::span<const int64_t> cuts, Place place) {
  size_t entry = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto size = static_cast<size_t>(bytes[static_cast<size_t>(rank)]);
    RETURN_IF_ERROR(
        Annotate(reader_.Read(sums.first(size), region(rank + 1) - region(rank)), absl::StrCat("from rank ", rank)));
    sums = sums.subspan(size);
    PlaceRegion(rank, place);
    for (size_t i = 0; i < reader_.positions().size(); ++i) {
      const int64_t position = region(rank) + int64_t{reader_.positions()[i]};
      while (entry < positions_.size() && positions_[entry] < position) TakeBack(entry++, !global_);
      if (global_ && reader_.values()[i] == 0) continue;
      if (entry < positions_.size() && positions_[entry] == position) TakeBack(entry++, true);
      if (rank == rank_) KeepRounding(position, region_sum_.sum()[reader_.positions()[i]]);
    }
  }
  while (entry < positions_.size()) TakeBack(entry++, !global_);
  std::vector<int64_t> next(cuts.begin(), cuts.end());
  next.front() = 0;
  next.push_back(elements());
  if (!std::ranges::is_sorted(next)) return absl::DataLossError("regions of a bucket that are none");
  *cuts_ = std::move(next);
  return absl::OkStatus();
}

// Of an entry that was told: only what Cut has rounded off.
void SparseSplit::TakeBack(size_t entry, bool told) {
  const float value = told ? rounded_[entry] : values_[entry];
  if (told && value == 0) return;  // untold, u comes back also where v's half was 0
  const int64_t position = positions_[entry];
  while (position >= pieces_[piece_].end) ++piece_;
  returned_.push_back({pieces_[piece_].tensor, static_cast<size_t>(position - pieces_[piece_].begin), value,
                       told ? Returned::kRounding : entry});
}

void SparseSplit::KeepRounding(int64_t position, float left) {
  if (left == 0 || sum_options_.values == ValueType::kF32 || scale_ == 0) return;
  const auto next = std::ranges::upper_bound(begins_, position);
  const auto tensor = static_cast<size_t>(next - begins_.begin() - 1);
  returned_.push_back({tensor, static_cast<size_t>(position - begins_[tensor]), left / scale_, Returned::kRounding});
}

}  // namespace gyre::internal
