// What a host has, as its agent sees it, for the preflight.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gyre::launch {

struct HostFacts {
  uint32_t cpus = 0;         // that the agent may run on, within its cgroup's quota
  uint32_t gpus = 0;         // NVIDIA's, as the driver tells, or else by their device files
  uint64_t memory = 0;       // bytes: the machine's, or its cgroup's limit
  uint64_t shm_free = 0;     // bytes, in /dev/shm
  uint64_t memlock = 0;      // bytes that may be locked; UINT64_MAX: any number
  uint64_t wall_us = 0;      // microseconds since 1970 by the host's clock
  uint32_t mtu = 0;          // of the network between the hosts, where one was chosen; 0: not known
  std::string machine{};     // differs between machines and network namespaces; empty: not known
  uint32_t rdma = 0;         // devices for RDMA
  std::string driver{};      // NVIDIA's version, "550.54.15"; empty: there is none, as in the next two
  std::string cuda{};        // the newest that the driver can do, "12.4"
  std::string nccl{};        // looked for where there are GPUs
  std::string shares{};      // hosts with the same share memory between their ranks; empty: with no other one
  std::string address{};     // by which it reaches the store, with its subnet, "10.77.0.2/24"; empty: not known
  std::string interface {};  // whose that is
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

// "8 CPUs, 2 GPUs (CUDA 12.4, driver 550.54.15, NCCL 2.21.5), 64.0 GiB, /dev/shm 1.0 GiB free, memlock 64 KiB, 1 RDMA
// device, eth0 10.77.0.2/24, MTU 1500", without what there is not.
std::string FactsText(const HostFacts& facts);

}  // namespace gyre::launch
