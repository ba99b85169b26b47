// The remote shell's command line.
#pragma once

#include <string>
#include <vector>

#include "launch/options.h"

namespace gyre::launch {

// CMD HOST gyrerun --agent, for --dry-run and for starting it. The word before the last is gyrerun's path on the host.
std::vector<std::string> RemoteCommand(const Options& options, const std::string& host);

}  // namespace gyre::launch
