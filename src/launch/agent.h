// The agent: gyrerun on a host, below a remote shell, for a gyrerun elsewhere (the launcher) that started it. Speaks
// with the launcher over its standard input and output, and starts, watches and ends the ranks of its host.
//
// Whoever loses the other ends: an agent without launcher ends its ranks.
#pragma once

namespace gyre::launch {

// The agent's supervisor; returns its exit code. The signals of TakeSignals must be blocked. Blocks for as long as the
// job runs. `guard_pidfd`: readable once the guard has died.
int RunAgent(int guard_pidfd);

}  // namespace gyre::launch
