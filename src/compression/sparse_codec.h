// Codecs that send few elements whole, and keep the others.
#pragma once

#include <cstdint>
#include <memory>

#include "compression/codec.h"

namespace gyre::compression {

// REQUIRES: valid options, 0 <= count < 2^32.
std::unique_ptr<Codec> MakeTopK(const TopK& options, int64_t count, double link_bytes_per_second);
std::unique_ptr<Codec> MakeRandomK(const RandomK& options, int64_t count);

// sum += scale * a RandomK payload's elements. kDataLoss, with nothing changed, if it is none.
absl::Status DecodeAddRandom(std::span<const std::byte> bytes, float scale, std::span<float> sum);

}  // namespace gyre::compression
