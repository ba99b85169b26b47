#include "launch/placement.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::launch {

namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, Destroy>;

absl::StatusOr<Topology> Load(const std::string& synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return ErrnoStatus("hwloc_topology_init");
  Topology topology(raw);
  if (!synthetic.empty() && hwloc_topology_set_synthetic(raw, synthetic.c_str()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("no topology: ", synthetic));
  }
  // What taskset(1) or a container leaves to this process.
  if (synthetic.empty()) hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING);
  if (hwloc_topology_load(raw) != 0) return ErrnoStatus("hwloc_topology_load");
  return topology;
}

std::vector<int> CpusOf(hwloc_const_cpuset_t set) {
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu)) cpus.push_back(cpu);
  return cpus;
}

std::vector<hwloc_obj_t> ObjectsIn(hwloc_topology_t topology, hwloc_const_cpuset_t set, hwloc_obj_type_t type) {
  std::vector<hwloc_obj_t> objects;
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_covering_cpuset_by_type(topology, set, type, object)) != nullptr;) {
    objects.push_back(object);
  }
  return objects;
}

// NUMA nodes that have processors: there are some with memory alone.
std::vector<hwloc_obj_t> Nodes(hwloc_topology_t topology) {
  std::vector<hwloc_obj_t> nodes;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    if (hwloc_bitmap_iszero(node->cpuset) == 0) nodes.push_back(node);
  }
  return nodes;
}

// All cores: node after node, or one of each node in turn.
std::vector<hwloc_obj_t> CoresInOrder(hwloc_topology_t topology, MapBy map) {
  hwloc_const_cpuset_t all = hwloc_topology_get_topology_cpuset(topology);
  // A machine that tells nothing of its cores has processors all the same.
  const hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  if (map == MapBy::kCore) return ObjectsIn(topology, all, type);
  std::vector<std::vector<hwloc_obj_t>> by_node;
  size_t most = 0;
  for (hwloc_obj_t node : Nodes(topology)) {
    by_node.push_back(ObjectsIn(topology, node->cpuset, type));
    most = std::max(most, by_node.back().size());
  }
  std::vector<hwloc_obj_t> cores;
  for (size_t turn = 0; turn < most; ++turn) {
    for (const auto& of_node : by_node) {
      if (turn < of_node.size()) cores.push_back(of_node[turn]);
    }
  }
  return cores;
}

absl::Status Oversubscribed(int ranks, size_t places, const char* what) {
  return absl::FailedPreconditionError(
      absl::StrCat("not bound: ", ranks, " ranks are more than the ", places, " ", what));
}

absl::StatusOr<std::vector<Binding>> ToCores(hwloc_topology_t topology, MapBy map, int ranks) {
  const std::vector<hwloc_obj_t> cores = CoresInOrder(topology, map);
  if (static_cast<size_t>(ranks) > cores.size()) return Oversubscribed(ranks, cores.size(), "cores");
  std::vector<Binding> bindings;
  for (int i = 0; i < ranks; ++i) {
    bindings.push_back({absl::StrCat("core ", cores[i]->logical_index), CpusOf(cores[i]->cpuset)});
  }
  return bindings;
}

absl::StatusOr<std::vector<Binding>> ToNodes(hwloc_topology_t topology, MapBy map, int ranks) {
  const std::vector<hwloc_obj_t> nodes = Nodes(topology);
  const auto cpus = static_cast<size_t>(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU));
  if (static_cast<size_t>(ranks) > cpus || nodes.empty()) return Oversubscribed(ranks, cpus, "processors");
  std::vector<Binding> bindings;
  for (size_t i = 0; i < static_cast<size_t>(ranks); ++i) {
    const size_t blocks = i * nodes.size() / static_cast<size_t>(ranks);
    hwloc_obj_t node = nodes[map == MapBy::kNuma ? i % nodes.size() : blocks];
    bindings.push_back({absl::StrCat("NUMA node ", node->os_index), CpusOf(node->cpuset)});
  }
  return bindings;
}

}  // namespace

absl::StatusOr<std::vector<Binding>> PlanBindings(BindTo bind, MapBy map, int ranks, const std::string& synthetic) {
  if (bind == BindTo::kNone) return std::vector<Binding>();
  ASSIGN_OR_RETURN(const Topology topology, Load(synthetic));
  return bind == BindTo::kCore ? ToCores(topology.get(), map, ranks) : ToNodes(topology.get(), map, ranks);
}

std::string CpuListText(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[i]);
    if (last > i) absl::StrAppend(&text, "-", cpus[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace gyre::launch
