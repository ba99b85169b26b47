// Ranks whose tensors are on GPUs: threads, each with a fake one of its own or one with the others of its host, which
// does what is queued late and in an order from its seed.
#pragma once

#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "device/fake_gpu.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "runtime/gpus.h"
#include "support/fill.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre {
class FakeNccl;
}  // namespace gyre

namespace gyre::support {

struct GpuRank {
  Rank rank;
  std::unique_ptr<Runtime> runtime;
  device::FakeGpu* gpu = nullptr;  // the runtime's
  FakeNccl* nccl = nullptr;        // likewise; null: none
  void* stream = nullptr;          // the program's
  std::barrier<>* arrivals = nullptr;

  // Returns once all ranks have come here: what they did before has ended on all of them. (When a collective ends on
  // one, the others may still have to find out that it did.)
  void Meet() const { arrivals->arrive_and_wait(); }

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

// Of a rank that is to run out of time, by when all that can be done is done on a loaded machine too; and of the
// others, which are to learn of that.
inline std::chrono::milliseconds TimeoutOf(bool runs_out) {
  return std::chrono::seconds(runs_out ? 2 : 20);
}

inline constexpr internal::staged::Sizes kSmallSlots{.slot_bytes = 2048, .slots = 3};

// Whose each GPU is.
enum class Owner { kRank, kHost };

inline std::vector<std::shared_ptr<device::FakeGpu>> GpusOf(const HostSizes& hosts, unsigned seed, Owner owner) {
  std::vector<std::shared_ptr<device::FakeGpu>> gpus;  // by rank
  for (const int ranks : hosts) {
    for (int local = 0; local < ranks; ++local) {
      const unsigned number = seed * 100 + static_cast<unsigned>(gpus.size());
      const bool another = owner == Owner::kRank || local == 0;
      gpus.push_back(another ? std::make_shared<device::FakeGpu>(number) : gpus.back());
    }
  }
  return gpus;
}

// `adapt`: what ranks' options are besides.
inline void RunOnGpus(
    const HostSizes& hosts, unsigned seed, const std::function<void(GpuRank&)>& body, Owner owner = Owner::kRank,
    const std::function<void(RuntimeOptions&)>& adapt = [](RuntimeOptions&) {}) {
  const auto of_ranks = GpusOf(hosts, seed, owner);
  std::barrier arrivals(std::ssize(of_ranks));
  RunThreads(static_cast<int>(of_ranks.size()), [&](const Rank& rank) {
    const absl::Cleanup drop = [&] { arrivals.arrive_and_drop(); };
    RuntimeOptions options = JobOptions(rank, hosts);
    adapt(options);
    GpuRank one{.rank = rank, .runtime = JoinJob(rank, options), .arrivals = &arrivals};
    ASSERT_NE(one.runtime, nullptr);
    const auto& gpu = of_ranks[static_cast<size_t>(rank.rank)];
    one.gpu = gpu.get();
    internal::Gpus& gpus = internal::Gpus::Of(one.world());
    gpus.OpenBy([&gpu](int ordinal) -> absl::StatusOr<std::shared_ptr<device::Gpu>> {
      if (ordinal != 0) return std::make_shared<device::FakeGpu>(1, ordinal);
      return gpu;
    });
    gpus.StageBy(kSmallSlots);
    one.stream = *one.gpu->CreateStream();
    ASSERT_THAT(one.runtime->Allocate(1, one.device()), IsOk());  // opens it
    body(one);
    one.gpu->DestroyStream(one.stream);
  });
}

}  // namespace gyre::support
