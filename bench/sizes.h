// Sizes on the command line: "8", "64K", "256M", "1G" (powers of 1024).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::bench {

absl::StatusOr<int64_t> ParseSize(const std::string& text);

// begin, begin * factor, ... up to end. kInvalidArgument: begin is larger than end, so nothing would be measured.
// REQUIRES: 0 < begin, factor >= 2.
absl::StatusOr<std::vector<int64_t>> SizeRange(int64_t begin, int64_t end, int factor);

}  // namespace gyre::bench
