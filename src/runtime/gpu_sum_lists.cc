#include "runtime/gpu_sum_lists.h"

#include <algorithm>

#include "gyre/status_macros.h"

namespace gyre::internal {

namespace {

using device::kernels::ReturnedList;
using Returned = SparseSplit::Returned;

constexpr int64_t kWord = sizeof(uint32_t);
static_assert(sizeof(float) == kWord);

// What is sent, one behind the other.
struct Lists {
  uint32_t* elements;  // of results
  float* values;
  uint32_t* returned;  // elements
  float* returned_values;
  uint32_t* entries;

  Lists(std::byte* base, size_t results, size_t back)
      : elements(reinterpret_cast<uint32_t*>(base)),
        values(reinterpret_cast<float*>(elements + results)),
        returned(reinterpret_cast<uint32_t*>(values + results)),
        returned_values(reinterpret_cast<float*>(returned + back)),
        entries(reinterpret_cast<uint32_t*>(returned_values + back)) {}
};

// Of the chosen elements which of its gradient's comes back.
uint32_t EntryOf(const Returned& each, const SparseSplit& split) {
  if (each.entry == Returned::kRounding) return device::kernels::kNoEntry;
  return static_cast<uint32_t>(each.entry - split.first_entry(each.tensor));
}

}  // namespace

void GpuSumLists::Begin() {
  runs_.clear();
  elements_.clear();
  values_.clear();
}

// A gradient that two regions share comes twice, one behind the other.
void GpuSumLists::Place(const SparseSplit::Results& results) {
  for (const uint32_t position : results.positions) {
    elements_.push_back(static_cast<uint32_t>(int64_t{position} - results.begin));
  }
  values_.insert(values_.end(), results.values.begin(), results.values.end());
  if (runs_.empty() || runs_.back().to != results.to.data()) runs_.push_back({results.to.data(), 0});
  runs_.back().count += std::ssize(results.values);
}

absl::Status GpuSumLists::Send(const SparseSplit& split, std::span<const Kept> kept, Parcel& parcel) {
  const std::span<const Returned> returned = split.returned();
  const int64_t words = 2 * std::ssize(elements_) + 3 * std::ssize(returned);
  if (words == 0) return absl::OkStatus();
  RETURN_IF_ERROR(parcel.Resize(words * kWord));
  const Lists here(parcel.here(), elements_.size(), returned.size());
  std::ranges::copy(elements_, here.elements);
  std::ranges::copy(values_, here.values);
  for (size_t i = 0; i < returned.size(); ++i) {
    here.returned[i] = static_cast<uint32_t>(returned[i].element);
    here.returned_values[i] = returned[i].value;
    here.entries[i] = EntryOf(returned[i], split);
  }
  RETURN_IF_ERROR(parcel.Send());
  const Lists there(parcel.there(), elements_.size(), returned.size());
  RETURN_IF_ERROR(PutAll(there.elements, there.values));
  return TakeBack(split, kept, there.returned, there.returned_values, there.entries);
}

absl::Status GpuSumLists::PutAll(const uint32_t* elements, const float* values) const {
  for (const Run& run : runs_) {
    RETURN_IF_ERROR(
        device_.Named(device_.gpu().codecs().PutElements({elements, values, run.count}, run.to, device_.stream())));
    elements += run.count;
    values += run.count;
  }
  return absl::OkStatus();
}

// Those of a gradient stand together.
absl::Status GpuSumLists::TakeBack(const SparseSplit& split, std::span<const Kept> kept, const uint32_t* elements,
                                   const float* values, const uint32_t* entries) const {
  const std::span<const Returned> returned = split.returned();
  for (size_t begin = 0, end = 0; begin < returned.size(); begin = end) {
    while (end < returned.size() && returned[end].tensor == returned[begin].tensor) ++end;
    const Kept& of = kept[returned[begin].tensor];
    const ReturnedList list{.list = {elements + begin, values + begin, static_cast<int64_t>(end - begin)},
                            .entries = of.momentum == nullptr ? nullptr : entries + begin,
                            .momenta = of.momenta,
                            .momentum = of.momentum,
                            .velocity = of.velocity};
    RETURN_IF_ERROR(device_.Named(device_.gpu().codecs().TakeBack(list, device_.stream())));
  }
  return absl::OkStatus();
}

}  // namespace gyre::internal
