// Errors of command lines.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::launch {

// kInvalidArgument: one line that says what is wrong, and what to try next.
inline absl::Status Wrong(std::string_view what, std::string_view next = "gyrerun --help") {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(what), "; try: ", ToAbsl(next)));
}

}  // namespace gyre::launch
