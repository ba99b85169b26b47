// The ranks of one host in one thread, with one fake GPU among them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "collectives/gpu/ranks_on_gpus.h"
#include "collectives/shm/group.h"

namespace gyre {

// The group of ranks `first` to `first + size - 1` of a job of `job_size`, which are all of a host's: what each of them
// has of it. Numbers are the job's.
std::vector<std::shared_ptr<internal::Group>> GroupOfHost(int first, int size, int job_size);

class HostOfRanks final : public RanksOnGpus {
 public:
  HostOfRanks(int size, uint64_t seed)
      : RanksOnGpus(
            std::vector(static_cast<size_t>(size), std::make_shared<device::FakeGpu>(static_cast<unsigned>(seed))),
            seed),
        groups_(GroupOfHost(0, size, size)) {}

  const std::shared_ptr<internal::Group>& group(int rank) const { return groups_[static_cast<size_t>(rank)]; }
  const std::shared_ptr<device::FakeGpu>& gpu() const { return RanksOnGpus::gpu(0); }

  // A group of some of the ranks, in this order: what each of them has of it.
  std::map<int, std::shared_ptr<internal::Group>> Part(const std::vector<int>& ranks) const;

 private:
  const std::vector<std::shared_ptr<internal::Group>> groups_;
};

}  // namespace gyre
