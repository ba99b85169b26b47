// A user's script, run for what it prints.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace gyre::launch {

// Runs `command` by the shell and returns its standard output (1 MiB at most) once it has exited with 0. Its standard
// input is empty, its standard error gyrerun's. It is killed with its process group when this process ends, whatever
// ends that. kUnavailable: it exited with something else, or was not done by `deadline` and was killed likewise.
absl::StatusOr<std::string> RunScript(const std::string& command, TimePoint deadline);

}  // namespace gyre::launch
