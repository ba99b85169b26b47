// TensorPacker: takes tensors that lie here and there on a GPU into one buffer, and back: by one kernel each way where
// the same ones come again, or one has another dtype than the buffer; else by a copy each, for who has new memory every
// time would pay for a table every time.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/gpu.h"
#include "gyre/dtype.h"

namespace gyre::device {

// Not thread-safe. All is queued on one stream, which outlives it, as the GPU does. Errors are MakePackTable's and the
// GPU's.
class TensorPacker {
 public:
  TensorPacker(Gpu& gpu, Gpu::Stream stream) : gpu_(gpu), stream_(stream) {}

  // From now on these go, to a buffer of elements of `dtype` and back. Each call is a time that they come.
  absl::Status Choose(std::vector<Segment> segments, DType dtype);

  // They go by a table, though it be the first time.
  absl::Status MakeTable();

  // Of what was chosen last.
  absl::Status Pack(void* buffer);
  absl::Status Unpack(const void* buffer);

  // What they go by; null: by copies.
  const std::shared_ptr<const Gpu::Table>& table() const { return table_; }

 private:
  Gpu& gpu_;
  Gpu::Stream const stream_;
  std::vector<Segment> segments_;
  DType dtype_ = DType::kF32;  // of the buffer
  std::shared_ptr<const Gpu::Table> table_;
};

}  // namespace gyre::device
