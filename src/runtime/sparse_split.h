// SparseSplit: what a rank does in a balanced split-reduce of a part's sparse payloads (compression/split_sum.h): cuts
// what it has chosen into a slice for each rank, adds up its own region of all, and puts all regions' sums in place.
// Regions are those in which the step before had as many entries each: no call is made to agree on them.
//
// Where the choice is global (Ok-Topk), regions' owners tell only the sums above a threshold (global_choice.h), and
// each rank takes back what it had chosen of the others, bit by bit: of what it is not told, nothing was counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "compression/sparse.h"
#include "compression/split_sum.h"

namespace gyre::internal {

// Not thread-safe.
class SparseSplit {
 public:
  // `scale`: by what a sum becomes the result. `options`: of what ranks have chosen, and of sums too where these are
  // `rounded`, or else sums are floats. `global`: of sums only as many are told as Begin says.
  SparseSplit(int rank, int ranks, float scale, const compression::SparseOptions& options, bool rounded, bool global)
      : rank_(rank), ranks_(ranks), global_(global), scale_(scale), options_(options), sum_options_(options) {
    if (!rounded) sum_options_.values = ValueType::kF32;
  }

  // Whether positions in so many elements can be written down.
  static bool Fits(int64_t elements) { return elements <= int64_t{UINT32_MAX}; }

  // Begins with a part: `key` tells it from others, `tensors` are where its results go, and are 0 (nothing is read or
  // written there: it may be a GPU's memory); `wanted` sums of each are told, where not all are. Add, in their order:
  // this rank's sparse payload of one of them, or of a piece of it. Then Cut.
  void Begin(const std::vector<int>& key, std::vector<std::span<float>> tensors, std::vector<int64_t> wanted);
  absl::Status Add(std::span<const float> piece, std::span<const std::byte> payload);
  void Cut();

  // What this rank sends to each.
  std::vector<std::byte>& slices() { return slices_; }
  std::span<const int64_t> slice_bytes() const { return slice_bytes_; }

  // Where this rank would have the region of `rank` begin in the next step.
  int64_t ProposedCut(int rank) const;

  // Adds up this rank's region of what each rank has sent of it, one after the other. kDataLoss
  absl::Status Sum(std::span<const std::byte> received, std::span<const int64_t> bytes);

  // Where the choice is global: what this rank tells the others of how large its region's sums are, how many bytes
  // that is of each rank, and which sums are chosen by what all have told, one after the other.
  std::vector<std::byte> DescribeSums();
  std::vector<int64_t> DescriptionBytes() const;
  void ChooseSums(std::span<const std::byte> described);

  // Encodes the region's sums, or of them those that were chosen.
  void EncodeSums() { region_sum_.Encode(sum_options_, sum_bytes_); }
  std::vector<std::byte>& sum() { return sum_bytes_; }

  // Sums that are results: the i-th is that of to[positions[i] - begin].
  struct Results {
    std::span<float> to;                  // one of `tensors`
    std::span<const uint32_t> positions;  // ascending
    int64_t begin;
    std::span<const float> values;
  };
  using Place = absl::FunctionRef<void(const Results& results)>;

  // Calls `place` with the sums of all regions, in their order. `cuts`: where the regions of the next step begin, by
  // rank. kDataLoss
  absl::Status Deliver(std::span<const std::byte> sums, std::span<const int64_t> bytes, std::span<const int64_t> cuts,
                       Place place);

  // After that: what this rank has to send yet, of what it has given to Add or of what it has added up.
  struct Returned {
    static constexpr size_t kRounding = SIZE_MAX;

    size_t tensor, element;  // of what Add has got of the tensor
    float value;
    size_t entry;  // which of all that Add has got comes back; kRounding: what was rounded off of one, or of a sum
  };
  std::span<const Returned> returned() const { return returned_; }  // in the order of positions

  // Where the regions of all parts begin in the next step, which all ranks know, as words: of each part how many
  // numbers its key has, these, and two words for each cut. RestoreCuts: false for words that are something else, which
  // change nothing.
  std::vector<uint32_t> SaveCuts() const;
  bool RestoreCuts(std::span<const uint32_t> words);

  // Which of all that Add has got is a tensor's first.
  size_t first_entry(size_t tensor) const { return first_entries_[tensor]; }

 private:
  struct Piece {
    int64_t begin, end;  // positions
    size_t tensor;
  };

  int64_t elements() const { return begins_.back(); }
  int64_t region(int rank) const { return (*cuts_)[static_cast<size_t>(rank)]; }
  std::pair<int64_t, int64_t> shared(int rank, size_t tensor) const;
  int Owners(size_t tensor) const;
  void PlaceRegion(int rank, Place place) const;
  void TakeBack(size_t entry, bool told);
  void KeepRounding(int64_t position, float left);

  const int rank_, ranks_;
  const bool global_;
  const float scale_;
  const compression::SparseOptions options_;
  compression::SparseOptions sum_options_;
  std::map<std::vector<int>, std::vector<int64_t>> cuts_of_;  // by key: one more than there are ranks
  std::vector<int64_t>* cuts_ = nullptr;                      // of the part that was begun
  std::vector<std::span<float>> tensors_;
  std::vector<int64_t> wanted_;        // by tensor
  std::vector<int64_t> begins_;        // by tensor: its first position; and where the last one ends
  std::vector<size_t> first_entries_;  // by tensor
  size_t added_ = 0;                   // to which tensor something was added last
  std::vector<uint32_t> positions_;
  // As if each piece were its whole tensor: of a mean of proposals that are each of one piece, none would be balanced.
  std::vector<uint32_t> spread_;
  std::vector<float> values_;   // as they were sent
  std::vector<float> rounded_;  // by entry: what Cut has rounded off
  std::vector<Piece> pieces_;   // what was added, in order
  size_t piece_ = 0;            // in which the entry that was looked at last is
  std::vector<Returned> returned_;
  compression::SparseDecoder decoder_;
  compression::RegionSum region_sum_;
  compression::RegionReader reader_;
  std::vector<std::byte> slices_, sum_bytes_, payload_;
  std::vector<int64_t> slice_bytes_;
};

}  // namespace gyre::internal
