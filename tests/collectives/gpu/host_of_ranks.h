// The ranks of one host in one thread, with one fake GPU among them, to poll their operations in any order.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "collectives/gpu_backend.h"
#include "collectives/shm/group.h"
#include "device/fake_gpu.h"

namespace gyre {

class HostOfRanks {
 public:
  HostOfRanks(int size, uint64_t seed);
  ~HostOfRanks();

  int size() const { return static_cast<int>(groups_.size()); }
  const std::shared_ptr<internal::Group>& group(int rank) const { return groups_[static_cast<size_t>(rank)]; }
  const std::shared_ptr<device::FakeGpu>& gpu() const { return gpu_; }
  std::mt19937_64& random() { return random_; }

  // The rank's own stream, with the call's tensors on it and marked as a runtime marks them.
  device::Gpu::Stream stream(int rank) const { return streams_[static_cast<size_t>(rank)]; }
  internal::GpuCall OnGpu(int rank, internal::Call call) const;

  using Operations = std::vector<std::shared_ptr<internal::Pollable>>;

  // Polls and checks them (null: that rank does nothing), and what watches beside them, until all have ended, or
  // `limit` is over: then false.
  bool Run(const Operations& operations, std::chrono::milliseconds limit = std::chrono::seconds(10));

  // For NCCL's watches.
  void StartWatch(const std::shared_ptr<internal::Pollable>& watch) { watches_.push_back(watch); }
  bool RunWatches(std::chrono::milliseconds limit = std::chrono::seconds(10));
  size_t watches() const { return watches_.size(); }

  // A group of some of the ranks, in this order: what each of them has of it.
  std::map<int, std::shared_ptr<internal::Group>> Part(const std::vector<int>& ranks) const;

 private:
  bool Step(internal::Pollable& operation);

  std::mt19937_64 random_;
  std::shared_ptr<device::FakeGpu> gpu_;
  std::vector<std::shared_ptr<internal::Group>> groups_;
  std::vector<device::Gpu::Stream> streams_;
  std::vector<device::Gpu::Event> ready_;
  Operations watches_;
};

}  // namespace gyre
