// Files, read whole.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace gyre {

// The content of a file. Throws nothing where the path is a directory, or the process of a file in /proc has ended:
// std::istreambuf_iterator does. Blocks where reading does (a pipe).
// An error names the path and has the code that fits the errno; kOutOfRange: there are more than `most` bytes.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most);

}  // namespace gyre
