// Processes that share one GPU, where there is one: IPC, on one host and within several, end to end.
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <vector>

#include "device/gpu_under_test.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "support/fill.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::HostSizes;
using support::IsOk;

constexpr Device kGpu{.gpu = 0};

void ExpectSum(Communicator& world, device::Gpu& gpu, Runtime& runtime, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  support::FillExact(values, 5, world.rank());
  const auto buffer = runtime.Allocate(count * 4, kGpu);
  ASSERT_THAT(buffer, IsOk());
  const TensorView tensor(buffer->data(), count, DType::kF32, kGpu);
  ASSERT_THAT(gpu.Copy(tensor.data, values.data(), tensor.bytes(), nullptr), IsOk());
  ASSERT_THAT(world.AllReduce(tensor), IsOk());
  ASSERT_THAT(gpu.Copy(values.data(), tensor.data, tensor.bytes(), nullptr), IsOk());
  ASSERT_THAT(gpu.Synchronize(nullptr), IsOk());
  for (int64_t i = 0; i < count; ++i) {
    double expected = 0;
    for (int r = 0; r < world.size(); ++r) expected += support::ExactValue(DType::kF32, 5, r, i);
    ASSERT_EQ(values[static_cast<size_t>(i)], expected) << "element " << i << " of " << count;
  }
}

// Of 64 MiB.
double SecondsOfAllReduce(Communicator& world, device::Gpu& gpu, Runtime& runtime) {
  constexpr int64_t kCount = 16 << 20;
  constexpr int kRounds = 20;
  const auto buffer = runtime.Allocate(kCount * 4, kGpu);
  EXPECT_THAT(buffer, IsOk());
  const TensorView tensor(buffer->data(), kCount, DType::kF32, kGpu);
  EXPECT_THAT(world.AllReduce(tensor), IsOk());
  EXPECT_THAT(gpu.Synchronize(nullptr), IsOk());
  EXPECT_THAT(world.Barrier(), IsOk());
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) EXPECT_THAT(world.AllReduce(tensor), IsOk());
  EXPECT_THAT(gpu.Synchronize(nullptr), IsOk());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / kRounds;
}

void SumUpOn(const HostSizes& hosts) {
  const int size = std::accumulate(hosts.begin(), hosts.end(), 0);
  support::RunProcesses(size, [&](const support::Rank& rank) {
    const auto gpu = device::OpenGpuUnderTest("cuda");
    if (absl::IsUnavailable(gpu.status())) GTEST_SKIP() << gpu.status().message();
    ASSERT_THAT(gpu, IsOk());
    const auto runtime = support::JoinJob(rank, support::JobOptions(rank, hosts));
    ASSERT_NE(runtime, nullptr);
    for (const int64_t count : {0, 1, 1001, 12'345'678}) ExpectSum(runtime->world(), **gpu, *runtime, count);
    const double seconds = SecondsOfAllReduce(runtime->world(), **gpu, *runtime);
    if (rank.rank != 0) return;
    std::printf("64 MiB, %d processes on one GPU, %zu hosts: %.3f ms\n", rank.size, hosts.size(), seconds * 1e3);
  });
}

TEST(ProcessesOnCuda, TwoSumUpByIpc) {
  SumUpOn({2});
}

TEST(ProcessesOnCuda, FourSumUpByIpc) {
  SumUpOn({4});
}

// Hosts that are this machine told that it is several, and talk by TCP over the loopback.
TEST(ProcessesOnCuda, TwoAndTwoSumUpHierarchically) {
  SumUpOn({2, 2});
}

}  // namespace
}  // namespace gyre
