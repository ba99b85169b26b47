// TensorPacker: takes tensors that lie here and there on a GPU into one buffer, and back: by one kernel each way where
// the same ones come again, or one has another dtype than the buffer; else by a copy each, for who has new memory every
// time would pay for a table every time.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/gpu.h"

namespace gyre::device {

// Not thread-safe. All is queued on one stream, which outlives it, as the GPU does.
class TensorPacker {
 public:
  TensorPacker(Gpu& gpu, Gpu::Stream stream) : gpu_(gpu), stream_(stream) {}

  // `buffer`: of elements of `dtype`. Errors are MakePackTable's and the GPU's.
  absl::Status Pack(const std::vector<Segment>& segments, void* buffer, DType dtype);

  // REQUIRES: those that were packed last, or there was no Pack, and they are of the buffer's dtype.
  absl::Status Unpack(const std::vector<Segment>& segments, const void* buffer, DType dtype);

 private:
  absl::Status MakeTable(const std::vector<Segment>& segments, DType dtype);

  Gpu& gpu_;
  Gpu::Stream const stream_;
  std::vector<Segment> segments_;      // that were packed last
  std::unique_ptr<Gpu::Table> table_;  // of these; null: they are copied one by one
};

}  // namespace gyre::device
