// At which address of its host an agent serves the job's store.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net/interfaces.h"

namespace gyre::launch {

// The one of `own` by which other hosts reach this one: one of `resolved` (what its name stands for), but none of the
// loopback. Pure. kFailedPrecondition says what was found, and what to try.
absl::StatusOr<std::string> ChooseStoreAddress(const std::string& host, const std::vector<std::string>& resolved,
                                               const std::vector<InterfaceAddress>& own);

// `host`: this host's name for the others; `interface`: name or subnet, or empty; `loopback`: no other host needs it.
// Blocks for as long as the system takes to look the name up.
absl::StatusOr<std::string> FindStoreAddress(const std::string& host, const std::string& interface, bool loopback);

}  // namespace gyre::launch
