// What ranks tell each other about where they run, and what follows from it.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "collectives/shm/grid.h"

namespace gyre::internal {

// One rank's place.
struct RankPlace {
  std::string version;    // of Gyre's library: all must be equal
  std::string host_id;    // equal on ranks that can share memory
  std::string host_name;  // for messages
  std::string address;    // where the rank's mesh listens
  std::vector<int> cpus;  // that the rank may run on
  bool traced = false;    // it writes a timeline
  Domain domain{};        // that all of these CPUs are in
};

std::string Encode(const RankPlace& place);
absl::StatusOr<RankPlace> DecodeRankPlace(const std::string& text);

// This process's place but for `address`. The host id, unless given, is that of the boot and the network namespace:
// abstract sockets, and so memory, are shared just within those. Machines that were resumed from one snapshot have the
// same: see SeparateHosts.
RankPlace ThisPlace(const std::string& configured_host_id);

// What the system tells of the cache and the NUMA node that all of `cpus` share. `system`: where it lists them.
Domain DomainOf(std::span<const int> cpus, const std::filesystem::path& system = "/sys/devices/system/cpu");

// Of the ranks of one host: whether they outnumber the union of their CPUs, so that one that spins may keep another
// from running.
bool IsCrowded(const std::vector<RankPlace>& places);

// OK if all ranks run one version; else kFailedPrecondition, naming two that differ.
absl::Status CheckVersions(const std::vector<RankPlace>& places);

// The first rank that this one, `self`, can share memory with: whose host id is the same, and whose address it reaches.
// `reaches`: asked of addresses of other ranks.
int FirstOnHost(const std::vector<RankPlace>& places, int self,
                absl::FunctionRef<bool(const std::string& address)> reaches);

// Makes the host ids differ between ranks that have found different FirstOnHosts. `firsts`: by rank, as texts.
// kDataLoss: one of them is no rank.
absl::Status SeparateHosts(std::vector<RankPlace>& places, const std::vector<std::string>& firsts);

// By rank: the number of its host, hosts being numbered in the order of their first ranks.
std::vector<int> HostsOf(const std::vector<RankPlace>& places);

// By rank: "rank 3 on host b".
std::vector<std::string> NamesOf(const std::vector<RankPlace>& places);

}  // namespace gyre::internal
