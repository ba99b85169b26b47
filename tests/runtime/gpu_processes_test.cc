// Processes that share one GPU, where there is one: IPC, end to end.
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "device/cuda/factory.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "support/fill.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

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

void SumUpIn(int size) {
  support::RunProcesses(size, [](const support::Rank& rank) {
    auto gpu = device::cuda::OpenGpu(0);
    if (!gpu.ok()) GTEST_SKIP() << gpu.status();
    const auto runtime = support::JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    for (const int64_t count : {0, 1, 1001, 12'345'678}) ExpectSum(runtime->world(), **gpu, *runtime, count);
    const double seconds = SecondsOfAllReduce(runtime->world(), **gpu, *runtime);
    if (rank.rank == 0) std::printf("64 MiB, %d processes on one GPU: %.3f ms\n", rank.size, seconds * 1e3);
  });
}

TEST(GpuProcesses, TwoSumUpByIpc) {
  SumUpIn(2);
}

TEST(GpuProcesses, FourSumUpByIpc) {
  SumUpIn(4);
}

}  // namespace
}  // namespace gyre
