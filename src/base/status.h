// Helpers on absl::Status for the library's own code. When to choose which code: docs/architecture.md.
#pragma once

#include <cerrno>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gyre/status_macros.h"  // IWYU pragma: export

namespace gyre {

// Debian's Abseil has a string_view of its own.
inline absl::string_view ToAbsl(std::string_view text) {
  return {text.data(), text.size()};
}

// The same code with "`context`: " before the message. OK stays OK.
absl::Status Annotate(const absl::Status& status, std::string_view context);

// "`what`: <text of error_number>", with the code that fits the errno.
absl::Status ErrnoStatus(std::string_view what, int error_number = errno);

}  // namespace gyre
