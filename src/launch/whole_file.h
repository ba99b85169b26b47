// Files that readers never find half written.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gyre::launch {

// Writes PATH.new and renames it. What is no regular file (a pipe, a terminal, /dev/null) is written as it is; it does
// not block. An error names the file.
absl::Status WriteWholeFile(const std::string& path, std::string_view text);

}  // namespace gyre::launch
