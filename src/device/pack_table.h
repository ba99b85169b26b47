// Tensors that lie here and there, and one buffer that holds them one after another: what a pack or unpack kernel goes
// by. Tensors differ in size by five orders of magnitude, so the table cuts them into tiles of equal bytes, one for
// each block of threads (as NVIDIA Apex's multi-tensor kernels do).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "gyre/dtype.h"

namespace gyre::device {

// One tensor and its place in the buffer. Plain data: it is copied to the GPU as it is.
struct Segment {
  void* data = nullptr;       // the tensor, on the GPU; pack only reads it
  int64_t count = 0;          // elements
  int64_t first = 0;          // element of the buffer that its first one goes to
  DType dtype = DType::kF32;  // of the tensor; the buffer's may be another
};

// Elements [first, first + count) of a segment.
struct Tile {
  int64_t first = 0;
  int32_t count = 0;
  int32_t segment = 0;
};

struct PackTable {
  DType buffer_dtype = DType::kF32;
  int64_t buffer_count = 0;  // elements, up to the end of the last segment
  std::vector<Segment> segments = {};
  std::vector<Tile> tiles = {};  // in the order of segments; together they have each element once
};

// Elements of these dtypes are converted into each other, through float. Others are only copied.
constexpr bool Convertible(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32;
}

// Tiles have `tile_bytes` of the buffer or less, and begin on multiples of 16 bytes of the buffer where their segment
// does. kInvalidArgument names the segment that has a negative size or place, no memory, a dtype that cannot be
// converted to the buffer's, or that overlaps the one before it. Segments must be in the buffer's order; gaps between
// them are left alone by pack.
absl::StatusOr<PackTable> MakePackTable(std::span<const Segment> segments, DType buffer_dtype,
                                        int64_t tile_bytes = 64 << 10);

}  // namespace gyre::device
