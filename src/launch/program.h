// Where PROGRAM is, before anything starts.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gyre::launch {

// The file that execvp(3) would run: `program` itself if it has a '/', else the first executable one along `path`
// (PATH's syntax). kNotFound or kPermissionDenied with one line that says what to try next.
absl::StatusOr<std::string> FindProgram(const std::string& program, std::string_view path);

// The exit code that shells give for it: 127 for kNotFound, 126 for the rest.
int ExitCodeOf(const absl::Status& not_started);

}  // namespace gyre::launch
