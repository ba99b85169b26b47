// What a host has, as its agent sees it, for the preflight.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gyre::launch {

struct HostFacts {
  uint32_t cpus = 0;      // that the agent may run on, within its cgroup's quota
  uint32_t gpus = 0;      // NVIDIA's, by their device files
  uint64_t memory = 0;    // bytes: the machine's, or its cgroup's limit
  uint64_t shm_free = 0;  // bytes, in /dev/shm
  uint64_t memlock = 0;   // bytes that may be locked; UINT64_MAX: any number
  uint64_t wall_us = 0;   // microseconds since 1970 by the host's clock
  uint32_t mtu = 0;       // of the network between the hosts, where one was chosen; 0: not known
  std::string machine{};  // differs between machines and network namespaces; empty: not known
};

// `address`: of this host in the network between the hosts, or empty.
HostFacts LookAtThisHost(const std::string& address);

// A host of a preflight.
struct CheckedHost {
  std::string name;
  int ranks = 0;
  HostFacts facts;
  double skew = 0;  // seconds by which its clock is ahead of the launcher's
};

// What may go wrong though all hosts are ready, a line each: "host b: ...". Pure.
std::vector<std::string> Doubts(const std::vector<CheckedHost>& hosts);

// "8 CPUs, 2 GPUs, 64.0 GiB, /dev/shm 1.0 GiB free, memlock 64 KiB, MTU 1500".
std::string FactsText(const HostFacts& facts);

}  // namespace gyre::launch
