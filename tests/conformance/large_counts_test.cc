// Its own binary: a sanitizer's shadow of these gigabytes would not fit a small machine.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

#include "gyre/gyre.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::IsOk;

// More than 2^31 elements: every count and offset must be 64-bit.
TEST(LargeCounts, AllReduceOverTwoToThe31Bytes) {
  constexpr int64_t kCount = (int64_t{1} << 31) + 4099;
  const int64_t available = static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  if (available < 3 * kCount)
    GTEST_SKIP() << "needs " << 3 * kCount << " bytes of memory, " << available << " are free";
  support::RunThreads(2, [](const support::Rank& rank) {
    RuntimeOptions options = support::JobOptions(rank);
    options.arena_bytes = kCount + 4096;
    options.operation_timeout = std::chrono::seconds(120);
    auto runtime = support::JoinJob(rank, options);
    ASSERT_NE(runtime, nullptr);
    auto buffer = runtime->Allocate(kCount);
    ASSERT_THAT(buffer, IsOk());
    const auto bytes = buffer->As<uint8_t>();
    for (int64_t i = 0; i < kCount; i += 4096) bytes[i] = static_cast<uint8_t>(i / 4096 + rank);
    bytes[kCount - 1] = static_cast<uint8_t>(7 + rank);
    ASSERT_THAT(runtime->world().AllReduce(TensorView(bytes.data(), kCount, DType::kU8)), IsOk());
    for (int64_t i = 0; i < kCount; i += 4096) ASSERT_EQ(bytes[i], static_cast<uint8_t>(2 * (i / 4096) + 1)) << i;
    EXPECT_EQ(bytes[kCount - 1], 15);
    EXPECT_EQ(bytes[kCount - 2], 0);
    bytes[kCount - 1] = static_cast<uint8_t>(rank == 0 ? 99 : 0);
    ASSERT_THAT(runtime->world().Broadcast(TensorView(bytes.data(), kCount, DType::kU8), 0), IsOk());
    EXPECT_EQ(bytes[kCount - 1], 99);
  });
}

}  // namespace
}  // namespace gyre
