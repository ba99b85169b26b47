// What codecs keep, as bytes, so that a job that is started again goes on where it was, also with another number of
// ranks:
//
//   header   u32 magic "GCMP", u32 version (1), u32 number of codecs, u32 0
//   a codec  u32 number of arrays, u32 0, i64 elements of each array, then the arrays: floats
//   trailer  u64 XXH3 of all before it
//
// In the byte order of the machine that wrote it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "compression/codec.h"

namespace gyre::compression {

// What one codec keeps: Codec::state, or another object's arrays of one length.
using StateArrays = std::vector<std::span<float>>;

std::vector<std::byte> SaveState(std::span<const StateArrays> codecs);
std::vector<std::byte> SaveState(std::span<Codec* const> codecs);

// Sets the codecs' arrays to the sum of what several ranks saved (each from as many codecs of the same sizes): of one
// for the rank that saved it; of none for a rank that begins empty. When N ranks saved and M go on, rank r takes over
// what those of the N whose number is r modulo M saved: so what was still to be sent is sent, once. On failure nothing
// is changed:
//   kDataLoss          cut short, altered, or not such a state
//   kInvalidArgument   of another version, or of other codecs; says which
absl::Status RestoreState(std::span<const std::span<const std::byte>> saved, std::span<const StateArrays> codecs);
absl::Status RestoreState(std::span<const std::span<const std::byte>> saved, std::span<Codec* const> codecs);

}  // namespace gyre::compression
