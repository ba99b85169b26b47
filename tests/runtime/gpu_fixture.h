// Ranks whose tensors are on GPUs: threads, each with a fake one of its own, which does what is queued late and in an
// order from its seed.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "collectives/gpu/fake_nccl.h"
#include "device/fake_gpu.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "runtime/gpus.h"
#include "support/fill.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre::support {

struct GpuRank {
  Rank rank;
  std::unique_ptr<Runtime> runtime;
  device::FakeGpu* gpu = nullptr;  // the runtime's
  FakeNccl* nccl = nullptr;        // likewise; null: none
  void* stream = nullptr;          // the program's

  Communicator& world() const { return runtime->world(); }
  Device on(void* which) const { return {.gpu = 0, .stream = which}; }
  Device device() const { return on(stream); }

  // Memory on the GPU, for as long as the object lives.
  struct Memory {
    Buffer buffer;
    TensorView view;
  };
  Memory Tensor(DType dtype, int64_t count, void* which) const {
    auto buffer = runtime->Allocate(count * DTypeSize(dtype) + 1, on(which));
    EXPECT_THAT(buffer, IsOk());
    TensorView view(buffer->data(), count, dtype, on(which));
    return {*std::move(buffer), view};
  }

  // Queues a copy from the host to the tensor, or back, in the order of its stream.
  void Put(const TensorView& to, const void* from) const {
    EXPECT_THAT(gpu->Copy(to.data, from, to.bytes(), to.device.stream), IsOk());
  }
  void Get(const TensorView& from, void* to) const {
    EXPECT_THAT(gpu->Copy(to, from.data, from.bytes(), from.device.stream), IsOk());
  }
  void Settle(void* which) const { EXPECT_THAT(gpu->Synchronize(which), IsOk()); }
};

inline constexpr internal::staged::Sizes kSmallSlots{.slot_bytes = 2048, .slots = 3};

inline void RunOnGpus(const HostSizes& hosts, unsigned seed, const std::function<void(GpuRank&)>& body) {
  RunThreads(std::accumulate(hosts.begin(), hosts.end(), 0), [&](const Rank& rank) {
    GpuRank one{.rank = rank, .runtime = JoinJob(rank, JobOptions(rank, hosts))};
    ASSERT_NE(one.runtime, nullptr);
    auto gpu = std::make_unique<device::FakeGpu>(seed * 100 + static_cast<unsigned>(rank.rank));
    one.gpu = gpu.get();
    internal::Gpus& gpus = internal::Gpus::Of(one.world());
    gpus.OpenBy([&gpu](int ordinal) -> absl::StatusOr<std::unique_ptr<device::Gpu>> {
      if (ordinal != 0) return std::make_unique<device::FakeGpu>(1, ordinal);
      return std::move(gpu);
    });
    gpus.StageBy(kSmallSlots);
    one.stream = *one.gpu->CreateStream();
    ASSERT_THAT(one.runtime->Allocate(1, one.device()), IsOk());  // opens it
    body(one);
    one.gpu->DestroyStream(one.stream);
  });
}

// The same with an NCCL among the ranks.
inline void RunByNccl(const HostSizes& hosts, unsigned seed, const std::function<void(GpuRank&)>& body) {
  const auto first = std::make_shared<device::FakeGpu>(seed);
  const int size = std::accumulate(hosts.begin(), hosts.end(), 0);
  std::vector<std::shared_ptr<device::FakeGpu>> gpus;
  for (int r = 0; r < size; ++r) gpus.push_back(first->Beside());
  FakeNccl nccl(*first);
  RunThreads(size, [&](const Rank& rank) {
    const auto& gpu = gpus[static_cast<size_t>(rank.rank)];
    GpuRank one{.rank = rank, .runtime = JoinJob(rank, JobOptions(rank, hosts)), .gpu = gpu.get(), .nccl = &nccl};
    ASSERT_NE(one.runtime, nullptr);
    internal::Gpus& gpus_of_runtime = internal::Gpus::Of(one.world());
    gpus_of_runtime.OpenBy([&gpu](int) { return gpu; }, &nccl);
    gpus_of_runtime.RegisterFrom(64);
    one.stream = *gpu->CreateStream();
    ASSERT_THAT(one.runtime->Allocate(1, one.device()), IsOk());
    body(one);
    gpu->DestroyStream(one.stream);
  });
  EXPECT_EQ(nccl.alive, 0);
  first->Free(nullptr);
  for (const auto& gpu : gpus) gpu->Free(nullptr);
}

}  // namespace gyre::support
