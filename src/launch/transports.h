// What the ranks of a job will send their data by, as the preflight knows it. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/host_facts.h"

namespace gyre::launch {

// One line for the pairs within a host, one for each set of hosts whose ranks share memory all the same, and one for
// all other pairs; only those that there are. `backend`: GYRE_BACKEND of the ranks, or empty. Under MPI these are of
// what it does not carry, and a line for what it does comes first.
std::vector<std::string> TransportLines(const std::vector<CheckedHost>& hosts, std::string_view backend);

}  // namespace gyre::launch
