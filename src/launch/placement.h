// Which processors each rank of a host may use: --bind-to and --map-by.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::launch {

enum class BindTo : uint8_t { kNone, kCore, kNuma };
// Which core or NUMA node is whose: ranks in their order fill them one after the other, or take the NUMA nodes in turn.
enum class MapBy : uint8_t { kCore, kNuma };

struct Binding {
  std::string where;      // "core 3", "NUMA node 0"
  std::vector<int> cpus;  // of the system's numbering, ascending
};

// One for each of a host's `ranks`; none with kNone. A core is one rank's, with all its hardware threads; a NUMA node
// is for as many ranks as fall on it. Only what this process may use itself counts. kFailedPrecondition: the host is
// oversubscribed (more ranks than cores, or than processors), and nobody is bound. `synthetic`: instead of this host's,
// a topology as hwloc describes it, for tests ("pack:2 [numa] core:4 pu:2").
absl::StatusOr<std::vector<Binding>> PlanBindings(BindTo bind, MapBy map, int ranks, const std::string& synthetic = "");

// "0-3,8".
std::string CpuListText(const std::vector<int>& cpus);

}  // namespace gyre::launch
