// Codecs that send few elements whole, and keep the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compression/codec.h"
#include "compression/payload.h"

namespace gyre::compression {

// REQUIRES: valid options, 0 <= count < 2^32.
std::unique_ptr<Codec> MakeTopK(const TopK& options, int64_t count, double link_bytes_per_second);
std::unique_ptr<Codec> MakeRandomK(const RandomK& options, int64_t count);

// What a RandomK payload says behind its header: u64 seed and u32 how many, by which positions follow, and as many
// floats.
struct RandomPayload {
  uint64_t seed = 0;
  int64_t sent = 0;
  std::span<const std::byte> values = {};
};
inline constexpr size_t kRandomHeaderBytes = kPayloadHeaderBytes + 12;

// The seed of step `step`.
uint64_t RandomSeed(const RandomK& options, int64_t step);

// All before the floats: kRandomHeaderBytes, of a tensor of `count` elements.
void StoreRandomHeader(std::byte* to, int64_t count, uint64_t seed, int64_t sent);

// kDataLoss: it is none of a tensor of `count` elements.
absl::StatusOr<RandomPayload> ReadRandom(std::span<const std::byte> bytes, int64_t count);

// sum += scale * a RandomK payload's elements. kDataLoss, with nothing changed, if it is none.
absl::Status DecodeAddRandom(std::span<const std::byte> bytes, float scale, std::span<float> sum);

}  // namespace gyre::compression
