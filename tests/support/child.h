// What a rank's process knows of itself: the side of ranks.h that runs in the children. Used by ranks.cc and main.cc.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "support/ranks.h"

namespace gyre::support {

// Exit codes of a rank's process beside 0 (all well) and 1 (an expectation failed).
inline constexpr int kSkippedExitCode = 77;
inline constexpr int kNeverRanExitCode = 78;

struct ChildContext {
  Rank rank;
  int call = 0;  // which of the test's calls of RunProcesses or ProcessGroup it belongs to
};

// The variables that make a process a child, and the way back. ReadChildContext removes them from the environment, so
// that programs which the child starts are not taken for children too.
std::map<std::string, std::optional<std::string>> ChildEnvironment(const ChildContext& context);
std::optional<ChildContext> ReadChildContext();

// The context of this process (empty in the parent), read at the first call; main() makes it.
const std::optional<ChildContext>& ThisChild();

}  // namespace gyre::support
