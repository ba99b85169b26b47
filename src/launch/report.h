// Text that gyrerun prints without starting anything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/hosts.h"
#include "launch/options.h"

namespace gyre::launch {

// --check-build: the version, then a line per optional part, "cuda: yes 13.0.88" or "ucx: no (reason)".
std::string BuildReport();

// --dry-run: the ranks, what would be set for each, and the command with its program at `path`. Over hosts: their
// ranks, too, and the remote shell's command.
std::string DryRunReport(const Options& options, const std::string& path);
std::string DryRunReport(const Options& options, const std::vector<HostRanks>& hosts);

// The command as a shell would take it, for people to read and copy.
std::string QuotedCommand(const std::vector<std::string>& command);

// What others wrote, as part of one line of gyrerun's own: control characters become blanks; the end is cut off after
// 1000 bytes.
std::string OneLine(std::string_view text);

}  // namespace gyre::launch
