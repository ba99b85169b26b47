// Ranks in one thread, each with a stream on a fake GPU, whose operations are polled in any order.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "collectives/gpu_backend.h"
#include "device/fake_gpu.h"

namespace gyre {

class RanksOnGpus {
 public:
  virtual ~RanksOnGpus();
  RanksOnGpus(const RanksOnGpus&) = delete;
  RanksOnGpus& operator=(const RanksOnGpus&) = delete;

  int size() const { return static_cast<int>(gpus_.size()); }
  const std::shared_ptr<device::FakeGpu>& gpu(int rank) const { return gpus_[static_cast<size_t>(rank)]; }
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
  void TurnWatches();  // each once
  size_t watches() const { return watches_.size(); }

  // All that the GPUs have queued and can do.
  void Settle() const;

 protected:
  // `gpus`: by rank.
  RanksOnGpus(std::vector<std::shared_ptr<device::FakeGpu>> gpus, uint64_t seed);

  virtual void LetTimePass() {}  // after every turn of all

 private:
  static bool Step(internal::Pollable& operation);

  std::mt19937_64 random_;
  const std::vector<std::shared_ptr<device::FakeGpu>> gpus_;
  std::vector<device::Gpu::Stream> streams_;
  std::vector<device::Gpu::Event> ready_;
  Operations watches_;
};

}  // namespace gyre
