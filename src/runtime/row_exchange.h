// RowExchange: the gradients of a reducer that are given as rows: what this rank has of them, and their sums over all
// ranks.
//
// They travel in two collective calls a step, whatever their number: an allgather of how many rows each rank has of
// each, then one of the rows. The counts are part of the gradients, as those of a ragged allgather are: they are no
// control messages, for no plan depends on them. Every rank then adds up the same rows in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "fusion/plan.h"
#include "fusion/rows.h"
#include "gyre/communicator.h"
#include "gyre/rows.h"

namespace gyre::internal {

// Check and Give may be called for different gradients at once; everything else needs the object to itself.
class RowExchange {
 public:
  // `tensors` are all of the reducer's, by place.
  explicit RowExchange(std::vector<fusion::TensorInfo> tensors)
      : tensors_(std::move(tensors)), at_(tensors_.size(), -1) {}

  // Before all else: this one is given as rows. In the same order on all ranks.
  void Add(int place, const fusion::RowShape& shape);

  bool has(int place) const { return at_[static_cast<size_t>(place)] >= 0; }

  // kInvalidArgument: fusion::CheckGiven.
  absl::Status Check(int place, const RowsView& given) const;

  // Adds rows to what this rank has, copied and converted. REQUIRES: Check was OK; has(place).
  void Give(int place, const RowsView& given);

  // Collective and blocking: sums what was given since the last exchange. Errors are the communicator's, or kDataLoss
  // for what no rank sends. `prescale` and `postscale` are of the sum, without the division of an average.
  absl::Status Exchange(Communicator& communicator, double prescale, double postscale, const CallOptions& options);

  // Of the last exchange: collective calls, bytes that this rank sent, and the result.
  int calls() const { return gradients_.empty() ? 0 : 2; }
  int64_t sent_bytes() const { return std::ssize(outgoing_); }
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
    fusion::RowSum own;     // given since the last exchange
    fusion::RowSum spare;   // to add to it
    fusion::RowSum result;  // of the last exchange
  };

  const Gradient& at(int place) const { return gradients_[static_cast<size_t>(at_[static_cast<size_t>(place)])]; }
  absl::Status CheckCounts(int ranks) const;
  std::vector<int64_t> Pack(int ranks);
  absl::Status Merge(const std::vector<int64_t>& bytes_of, double prescale, double postscale);

  const std::vector<fusion::TensorInfo> tensors_;
  std::vector<int> at_;  // by place: in gradients_; -1: dense
  std::vector<Gradient> gradients_;
  std::vector<int64_t> counts_;                 // by rank, then by gradient: rows
  std::vector<std::byte> outgoing_, incoming_;  // aligned as operator new aligns
};

}  // namespace gyre::internal
