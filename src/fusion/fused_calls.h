// Fused calls: which operations of a group travel as one, and how their tensors lie in it. Pure: all ranks come to the
// same, for they have agreed on what it depends on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fusion/negotiation.h"
#include "fusion/negotiator.h"

namespace gyre::internal {

// No more bytes than that travel in one call, but for a tensor that is larger.
inline constexpr int64_t kMostFusedBytes = 64 << 20;

// Where the tensor after this one, which begins at `place`, begins in their buffer: in elements.
int64_t NextPlace(int64_t place, const NamedSignature& signature);

// Whether `next`, the operation after `last`, travels in one call with it and those before: reductions element by
// element of tensors on GPUs, one after the other in a group, of one dtype, and with equal options. `place`: where it
// would begin.
bool Fuses(const NamedSignature& last, int64_t place, const NamedSignature& next);

// Where each part begins in their buffer, and its end: in elements, of which the first of a tensor lie on multiples of
// 16 bytes. As many as there are parts, and one more.
std::vector<int64_t> PlacesOf(std::span<const NamedPart> parts);

}  // namespace gyre::internal
