// Ranks whose tensors are on GPUs, with a fake NCCL among them; and those whose reducers go by graphs.
#pragma once

#include <barrier>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "collectives/gpu/fake_nccl.h"
#include "device/fake_gpu.h"
#include "gtest/gtest.h"
#include "runtime/gpu_fixture.h"
#include "runtime/gpus.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre::support {

// What each rank has: a GPU of its own, or a slice of the one that all have.
enum class Portion { kGpu, kSlice };

// As RunOnGpus.
inline void RunByNccl(const HostSizes& hosts, unsigned seed, const std::function<void(GpuRank&)>& body,
                      Portion portion = Portion::kGpu) {
  const auto first = std::make_shared<device::FakeGpu>(seed);
  const int size = std::accumulate(hosts.begin(), hosts.end(), 0);
  std::vector<std::shared_ptr<device::FakeGpu>> gpus;
  for (int r = 0; r < size; ++r) gpus.push_back(portion == Portion::kGpu ? first->Beside() : first->Slice());
  FakeNccl nccl(*first);
  std::barrier arrivals(size);
  RunThreads(size, [&](const Rank& rank) {
    const absl::Cleanup drop = [&] { arrivals.arrive_and_drop(); };
    const auto& gpu = gpus[static_cast<size_t>(rank.rank)];
    GpuRank one{.rank = rank,
                .runtime = JoinJob(rank, JobOptions(rank, hosts)),
                .gpu = gpu.get(),
                .nccl = &nccl,
                .arrivals = &arrivals};
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

// The plan stays after two steps, a third goes by it and is captured.
inline constexpr int64_t kCaptured = 3;

// One rank alone, ranks of a host, ranks of several.
inline void RunByGraphs(unsigned seed, const std::function<void(GpuRank&)>& body) {
  for (const HostSizes& hosts : {HostSizes{1}, HostSizes{2}, HostSizes{3}, HostSizes{1, 1}}) {
    SCOPED_TRACE(absl::StrCat(hosts.size(), " hosts, the first of ", hosts[0]));
    if (hosts == HostSizes{1}) {
      RunOnGpus(hosts, seed, body);
    } else {
      RunByNccl(hosts, seed, body);
    }
  }
}

}  // namespace gyre::support
