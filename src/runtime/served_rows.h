// ServedRows: tables of a ParameterServerClient, and rows of theirs between the program and the client: gradients are
// kept until the next Push, and what is on a GPU passes through pinned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "device/pinned_pool.h"
#include "gyre/tensor.h"
#include "ps/floats.h"
#include "ps/table.h"
#include "runtime/gpus.h"
#include "runtime/one_gpu.h"

namespace gyre::internal {

// Not thread-safe. Nothing waits for a GPU but Take, by looking at events, and the end, 2 s at most (PinnedPool).
class ServedRows {
 public:
  // Rows on a GPU are on this one, of rank `rank`.
  ServedRows(OneGpu& gpu, int rank) : gpu_(gpu), rank_(rank) {}
  ~ServedRows();
  ServedRows(const ServedRows&) = delete;
  ServedRows& operator=(const ServedRows&) = delete;

  // Returns its number. kInvalidArgument: ps::Check's, or the name is there.
  absl::StatusOr<int> Add(ps::Table table);
  const std::vector<ps::Table>& tables() const { return tables_; }
  bool Has(std::string_view name) const;

  // Both return kInvalidArgument for a table or row that is not there, and for values that are not a float32 for each
  // row and column, aligned as such, or are on another GPU or cudaStreamPerThread; and kFailedPrecondition for those on
  // a stream that is being captured. Others are the GPU's.

  // Gradients, which are copied: on a GPU, before what is queued on their stream from now on.
  absl::Status Push(int table, std::span<const int64_t> ids, const ConstTensorView& gradients);

  // What `pull` has filled in, if there are any rows: on a GPU, in the order of their stream.
  using Pull = absl::FunctionRef<absl::Status(std::span<float> values)>;
  absl::Status Fill(int table, std::span<const int64_t> ids, const TensorView& values, Pull pull);

  // What was pushed of all tables, for each of so many servers, one table after the other. Forgets it, also where it
  // fails: with ps::PackRows's errors, kDeadlineExceeded, or the GPU's.
  absl::StatusOr<std::vector<ps::Floats>> Take(int servers, TimePoint deadline);

 private:
  // On their way from a GPU.
  struct Staged {
    size_t first = 0, count = 0;  // among the table's gradients
    device::PinnedPool::Piece* piece = nullptr;
  };
  struct Pushed {
    std::vector<int64_t> ids;
    std::vector<float> gradients;
    std::vector<Staged> staged;
  };

  absl::Status Check(int table, std::span<const int64_t> ids, const ConstTensorView& values) const;
  absl::Status Of(int table, const absl::Status& status) const;
  absl::StatusOr<device::PinnedPool*> PoolFor(int table, const Device& device);
  absl::Status Await(size_t table, const Staged& staged, TimePoint deadline) const;
  absl::Status Arrive(TimePoint deadline);
  absl::StatusOr<std::vector<ps::Floats>> Pack(int servers, TimePoint deadline);

  OneGpu& gpu_;
  const int rank_;
  std::vector<ps::Table> tables_;
  std::vector<Pushed> pushed_;              // by table, since the last Take
  std::optional<device::PinnedPool> pool_;  // from the first rows on a GPU on
};

}  // namespace gyre::internal
