// A tensor of which few elements are sent: their positions and values, chunk by chunk of kMaxRange elements, each chunk
// with the index code that suits its density and the link. Format: docs/wire_format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "compression/payload.h"
#include "gyre/compression.h"

namespace gyre::compression {

struct SparseOptions {
  ValueType values = ValueType::kF32;
  double link_bytes_per_second = 1.25e9;  // chooses the index codes; infinite: the quickest to decode
};

// The dense payload whose elements are as wide as `values`.
PayloadKind DenseKindOf(ValueType values);

// Replaces `out` by the payload of elements `indices` of a tensor of `count` elements. `indices` ascend strictly and
// are < count < 2^32. `values` are those elements; each is left as what its receiver will not get of it: value minus
// decoded value, exactly (0 with kF32; 0 for what is not finite).
//
// kF16 values have one power of two a chunk as a scale, so that neither large nor small ones are lost.
void EncodeSparse(std::span<const uint32_t> indices, std::span<float> values, int64_t count,
                  const SparseOptions& options, std::vector<std::byte>& out);

// Reads sparse payloads; keeps its memory from one to the next. Not thread-safe.
class SparseDecoder {
 public:
  // Reads a payload of a tensor of `count` elements. kDataLoss if the bytes are anything else. Memory: at most eight
  // times `bytes`.
  absl::Status Decode(std::span<const std::byte> bytes, int64_t count);

  // What the last Decode that was OK read.
  std::span<const uint32_t> indices() const { return indices_; }
  std::span<const float> values() const { return values_; }

 private:
  absl::Status DecodeChunk(std::span<const std::byte>& rest, ValueType type, uint32_t base, uint32_t range);

  std::vector<uint32_t> indices_;
  std::vector<float> values_;
};

}  // namespace gyre::compression
