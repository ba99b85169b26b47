// StepHeader: what precedes every block on a stream between hosts. By it the receiver finds out that the sender is in
// another call, or means another block, before a byte of data is used. Layout: docs/wire_format.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "net/bytes.h"
#include "transport/signature.h"

namespace gyre::internal {

inline constexpr size_t kStepHeaderBytes = 64;

struct StepHeader {
  uint64_t channel = 0;
  uint64_t call = 0;  // number of the call in the channel, from 1
  Signature signature;
  uint32_t index = 0;     // the how many-th block of this call from this sender to this receiver, from 0
  int64_t bytes = 0;      // that follow
  bool checksum = false;  // eight bytes of checksum follow those

  friend bool operator==(const StepHeader&, const StepHeader&) = default;
};

using EncodedStepHeader = std::array<std::byte, kStepHeaderBytes>;

EncodedStepHeader Encode(const StepHeader& header);

// kDataLoss: not a header, or damaged. The bytes may be anything.
absl::StatusOr<StepHeader> DecodeStepHeader(const EncodedStepHeader& bytes);

}  // namespace gyre::internal
