// Dense payloads: every element in fewer bits. Formats: docs/wire_format.md. With SIMD, for the best instruction set of
// the machine; all give the same bits, and so does every cut of a tensor at multiples of kQuantizeBlock elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compression/payload.h"

namespace gyre::compression {

// Elements that share a scale.
inline constexpr int64_t kQuantizeBlock = 256;

// Bytes of `count` elements, without the payload's header. REQUIRES: a dense kind, that is all before kSparse.
int64_t QuantizedBytes(PayloadKind kind, int64_t count);

// Writes QuantizedBytes(kind, count) bytes of gradient + kept to `out`, and leaves in `kept` what its receivers do not
// get. One of them may be null: it is nothing then, and stays so. `seed` and an element's position draw the lots of
// kTernary.
//
// What is not finite reaches the receivers and is not kept: of kF32, kF16 and kBF16 the element itself; of the others
// as a block of NaN, whose elements keep what they had kept before. To these, magnitudes of 2^120 and more are not
// finite either: a block of them could not be summed.
void Quantize(PayloadKind kind, const float* gradient, float* kept, int64_t count, uint64_t seed, std::byte* out);

// sum += scale * what Quantize wrote. Any bytes are values.
void DequantizeAdd(PayloadKind kind, const std::byte* from, int64_t count, float scale, float* sum);

}  // namespace gyre::compression
