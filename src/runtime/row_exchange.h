// RowExchange: the gradients of a reducer that are given as rows: what this rank has of them, and their sums over all
// ranks.
//
// Those of one bucket travel in two collective calls, whatever their number: an allgather of how many rows each rank
// has of each, then one of the rows. The counts are part of the gradients, as those of a ragged allgather are: they are
// no control messages, for no plan depends on them. Every rank then adds up the same rows in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fusion/plan.h"
#include "fusion/rows.h"
#include "gyre/rows.h"
#include "runtime/call_sequence.h"

namespace gyre::internal {

// Check and Give may be called for different gradients at once, also while others are exchanged; everything else needs
// the object to itself.
class RowExchange final : public CallSequence {
 public:
  // `scale_result` is of the sum over all ranks, the division of an average included.
  struct Settings {
    int ranks = 1;
    double scale_source = 1, scale_result = 1;
  };

  // `tensors` are all of the reducer's, by place.
  RowExchange(std::vector<fusion::TensorInfo> tensors, const Settings& settings)
      : tensors_(std::move(tensors)), settings_(settings), at_(tensors_.size(), -1) {}

  // Before all else: this one is given as rows. In the same order on all ranks.
  void Add(int place, const fusion::RowShape& shape);

  bool has(int place) const { return at_[static_cast<size_t>(place)] >= 0; }

  // kInvalidArgument: fusion::CheckGiven.
  absl::Status Check(int place, const RowsView& given) const;

  // Adds rows to what this rank has, copied and converted. REQUIRES: Check was OK; has(place).
  void Give(int place, const RowsView& given);

  // Begins to sum what was given of these gradients since their last exchange. One exchange at a time.
  void Begin(const std::vector<int>& places);

  // CallSequence. Errors: kDataLoss for what no rank sends.
  absl::StatusOr<std::optional<Call>> Next() override;

  // Of the exchange in course: the bytes of its longer buffer.
  int64_t part_bytes() const { return std::ssize(incoming_); }

  // All exchanges of a step have ended: their results become what is found below.
  void FinishStep();

  // Of the last step: collective calls, bytes that this rank sent, and the results.
  int calls() const { return step_.calls; }
  int64_t sent_bytes() const { return step_.sent_bytes; }
  RowsView result(int place) const { return at(place).result.view(); }
  void Scatter(int place, TensorView dense) const { fusion::Scatter(at(place).result, dense); }
  const fusion::RowShape& shape(int place) const { return at(place).own.shape(); }

  // Of all results together (fusion/arithmetic.h).
  double SumOfSquares() const;
  bool AllFinite() const;
  void Scale(double scale);

 private:
  struct Gradient {
    int place;
    fusion::RowSum own;      // given since the last exchange
    fusion::RowSum spare;    // to add to it
    fusion::RowSum arrived;  // of the last exchange
    fusion::RowSum result;   // of the last step
  };
  struct Step {
    int calls = 0;
    int64_t sent_bytes = 0;
  };

  const Gradient& at(int place) const { return gradients_[static_cast<size_t>(at_[static_cast<size_t>(place)])]; }
  const Gradient& part(size_t i) const { return gradients_[part_[i]]; }
  Gradient& part(size_t i) { return gradients_[part_[i]]; }
  Call GatherCounts();
  absl::Status CheckCounts() const;
  void Pack();
  absl::StatusOr<Call> GatherRows();
  absl::Status Merge();

  const std::vector<fusion::TensorInfo> tensors_;
  const Settings settings_;
  std::vector<int> at_;  // by place: in gradients_; -1: dense
  std::vector<Gradient> gradients_;
  Step step_, next_step_;

  // Of the exchange in course.
  std::vector<size_t> part_;                    // its gradients, of gradients_
  int round_ = 0;                               // calls that were made
  std::vector<int64_t> own_counts_, counts_;    // of this rank; by rank, then by gradient: rows
  std::vector<int64_t> numbers_of_, bytes_of_;  // by rank: what it sends in either call
  std::vector<std::byte> outgoing_, incoming_;  // aligned as operator new aligns
};

}  // namespace gyre::internal
