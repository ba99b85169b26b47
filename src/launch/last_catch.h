// What becomes of exceptions that no function of launch caught.
#pragma once

#include <functional>

namespace gyre::launch {

// Runs `body` and returns its exit code. If an exception leaves it, says which on standard error and returns
// kExitInternal: then the guard ends what a job has started, where abort() would only leave a core.
int RunWithLastCatch(const std::function<int()>& body);

}  // namespace gyre::launch
