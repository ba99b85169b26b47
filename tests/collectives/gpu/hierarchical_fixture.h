// Ranks of several hosts with the hierarchical backend, in one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/gpu/calls.h"
#include "collectives/gpu/fake_nccl.h"
#include "collectives/gpu/hosts_of_ranks.h"
#include "collectives/gpu_staging.h"
#include "gtest/gtest.h"

namespace gyre {

class HierarchicalOnGpus : public testing::Test {
 protected:
  enum class By { kAlone, kIpc, kNccl };
  struct Host {
    int ranks;
    By by;  // what they exchange by
  };

  // Small, so that calls have many chunks, and a chunk several rounds within a host.
  static constexpr internal::staged::Sizes kSlots{.slot_bytes = 2048, .slots = 3};
  static constexpr int64_t kHalf = 4096;

  void Start(const std::vector<Host>& hosts, uint64_t seed = 1);

  // Nothing is left on the GPUs, nor in their hands.
  void End();
  void TearDown() override { End(); }

  using Operations = RanksOnGpus::Operations;

  // The ends of all that are not null.
  std::vector<absl::Status> Ended(const Operations& operations);

  // The allreduce of floats of all ranks, which stays until the end. On as many as are one chunk, or many.
  static constexpr int64_t kOneChunk = 100, kChunks = 5000;
  Sum& NewSum(int64_t count = kChunks);
  std::vector<absl::Status> AllReduce(int64_t count = kChunks,
                                      std::chrono::milliseconds timeout = std::chrono::seconds(5)) {
    return Ended(NewSum(count).Make(backends_, timeout));
  }
  void ExpectSums();
  void ExpectUnusable();

  // Each is polled so often, by turns, and checked.
  void Turn(const Operations& operations, int turns);

  int size() const { return ranks_->size(); }
  FakeNccl& nccl(int host) { return *nccls_[static_cast<size_t>(host)]; }

  std::unique_ptr<HostsOfRanks> ranks_;
  Backends backends_;

 private:
  std::shared_ptr<internal::GpuBackend> Within(int rank);

  std::vector<Host> hosts_;
  std::vector<std::unique_ptr<FakeNccl>> nccls_;  // by host
  std::vector<std::unique_ptr<Sum>> sums_;        // for as long as a GPU may be at work on them
};

}  // namespace gyre
