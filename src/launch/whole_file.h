// Files that readers never find half written.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gyre::launch {

// Writes PATH.new and renames it. An error names the file.
absl::Status WriteWholeFile(const std::string& path, std::string_view text);

}  // namespace gyre::launch
