// The decoders of agent_protocol.cc and watch_protocol.cc share this.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::launch {

// Microseconds; 142 years after a host's clock began to count. Of later times sums would overflow.
inline constexpr uint64_t kLatest = uint64_t{1} << 52;

// kDataLoss. `what`: the message, or its part.
inline absl::Status Malformed(std::string_view what) {
  return absl::DataLossError(absl::StrCat("malformed message: ", ToAbsl(what)));
}

}  // namespace gyre::launch
