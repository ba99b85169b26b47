// What a reducer's compression saves: what this rank's codecs keep, which is its own, and what all ranks have in
// common. With both a training goes on to the bit.
//
//   what codecs keep (compression/state.h), which may be of any length
//   the exchange's words (CompressedExchange::common), u32 each
//   u32 magic "GCMN", u32 ranks, i64 number of the next step, u64 how many words, u64 XXH3 of all before it
//
// In the byte order of the machine that wrote it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::internal {

struct CommonState {
  int ranks = 0;
  int64_t step = 0;  // the next one's number
  std::vector<uint32_t> words = {};
};

// Appends it to what codecs keep.
void AppendCommon(const CommonState& common, std::vector<std::byte>& kept);

struct OpenedState {
  std::span<const std::byte> kept = {};  // of what was opened
  CommonState common = {};
};

// kDataLoss: cut short, altered, or something else.
absl::StatusOr<OpenedState> OpenState(std::span<const std::byte> saved);

}  // namespace gyre::internal
