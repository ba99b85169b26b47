// Signature: what a call is, as far as all its ranks must agree on it.
#pragma once

#include <cstdint>

namespace gyre {

// Travels as it is in shared memory, field by field between hosts. What the numbers stand for is the layer's above.
struct Signature {
  uint8_t kind = 0;
  uint8_t dtype = 0;
  uint8_t op = 0;
  uint8_t device = 0;  // 1: its tensors are on GPUs
  int32_t root = 0;
  int64_t count = 0;
  uint64_t digest = 0;  // of whatever else must agree (scales, counts of the ranks)

  friend bool operator==(const Signature&, const Signature&) = default;
};

}  // namespace gyre
