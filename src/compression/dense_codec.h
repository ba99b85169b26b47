// Codecs that send every element, in fewer bits.
#pragma once

#include <cstdint>
#include <memory>

#include "compression/codec.h"
#include "compression/payload.h"

namespace gyre::compression {

// REQUIRES: a dense kind, count >= 0. `seed`: of kTernary.
std::unique_ptr<Codec> MakeDenseCodec(PayloadKind kind, int64_t count, uint64_t seed);

// Replaces `out` by a dense payload of `values`, and leaves in `kept`, if it is not null, what receivers do not get.
void EncodeDense(PayloadKind kind, std::span<const float> values, float* kept, uint64_t seed,
                 std::vector<std::byte>& out);

}  // namespace gyre::compression
