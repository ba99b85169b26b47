// RowsOnGpu: row gradients whose values are on a GPU. They are added up and exchanged on the host, by RowExchange:
// values come there through pinned memory, behind what was queued on their stream, and sums go back likewise. Row
// numbers are on the host throughout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/gpu.h"
#include "device/pinned_pool.h"
#include "fusion/rows.h"
#include "gyre/rows.h"
#include "runtime/row_exchange.h"

namespace gyre::internal {

// Check and Give may be called for different gradients at once, also while others arrive; everything else needs the
// object to itself. Nothing here waits for the GPU but Scatter, for the copy of a table, and the end, for what was
// queued here, 2 s at most, and then likewise for what is on its way to or from the host (PinnedPool).
class RowsOnGpu {
 public:
  // For so many tensors of the reducer's.
  RowsOnGpu(std::shared_ptr<device::Gpu> gpu, size_t tensors) : gpu_(std::move(gpu)), pool_(gpu_), by_place_(tensors) {}
  ~RowsOnGpu();
  RowsOnGpu(const RowsOnGpu&) = delete;
  RowsOnGpu& operator=(const RowsOnGpu&) = delete;

  // Before all else: this one is given as rows; its results are on `stream`.
  absl::Status Add(int place, const fusion::RowShape& shape, void* stream);

  // kInvalidArgument: the values are elsewhere.
  absl::Status Check(const RowsView& given) const;

  // What is queued on the values' stream from now on comes after they were read. Errors are Arrive's.
  // REQUIRES: Check was OK, and RowExchange::Check
  void Give(int place, const RowsView& given);

  // Whether what was given of these gradients is on the host by now; then `exchange` has it. Once for each exchange.
  absl::StatusOr<bool> Arrive(const std::vector<int>& places, RowExchange& exchange);

  // The exchange's results of this step are final: they go to the GPU, in the order of their streams.
  absl::Status Bring(const RowExchange& exchange);

  // Those that were brought last. The numbers are the exchange's.
  RowsView result(int place, const RowExchange& exchange) const;

  // All elements of the parameter, in the order of the stream of `dense`. kInvalidArgument: it is elsewhere, or of a
  // dtype that is not converted on a GPU.
  absl::Status Scatter(int place, const RowExchange& exchange, const TensorView& dense) const;

 private:
  // Given, and on its way.
  struct Pending {
    std::vector<int64_t> rows;
    int64_t count = 0;  // elements
    DType dtype = DType::kF32;
    device::PinnedPool::Piece* values = nullptr;
  };
  struct Gradient {
    fusion::RowShape shape{};
    void* stream = nullptr;
    std::vector<Pending> pending{};       // guarded by mutex_
    void* result = nullptr;               // on the GPU
    int64_t result_bytes = 0;             // that there is room for
    device::Gpu::Event queued = nullptr;  // the last of what was done here with the result
  };

  absl::Status CheckHere(const Device& device) const;
  absl::StatusOr<Pending> Copy(const RowsView& given);
  absl::StatusOr<bool> AreThere(const std::vector<int>& places);
  std::vector<Pending> TakePending(int place);
  absl::Status BringOne(Gradient& gradient, const RowsView& rows);
  absl::Status MakeRoom(Gradient& gradient, int64_t bytes);
  const Gradient& at(int place) const { return *by_place_[static_cast<size_t>(place)]; }

  const std::shared_ptr<device::Gpu> gpu_;
  device::PinnedPool pool_;
  std::vector<std::unique_ptr<Gradient>> by_place_;  // null: dense
  std::vector<void*> outgrown_;                      // memory of results; freed at the end, for that may wait
  std::mutex mutex_;
  absl::Status failure_;  // the first of Give; guarded by mutex_
};

}  // namespace gyre::internal
