// What stands on a GPU's copies and pack kernels: for the fake GPU, and for a real one, where there is one.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "device/fake_gpu.h"
#include "device/gpu_under_test.h"
#include "device/pinned_pool.h"
#include "device/tensor_packer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::device {
namespace {

using support::IsOk;

class PackerTest : public GpuUnderTest {
 protected:
  void SetUp() override {
    GpuUnderTest::SetUp();
    if (gpu_ != nullptr) stream_ = *gpu_->CreateStream();
  }
  void TearDown() override {
    GpuUnderTest::TearDown();
    if (gpu_ != nullptr) gpu_->DestroyStream(stream_);
  }

  template <typename T>
  void* Put(const std::vector<T>& values) {
    const auto memory = gpu_->Allocate(Bytes(values));
    EXPECT_THAT(memory, IsOk());
    allocated_.push_back(*memory);
    EXPECT_THAT(gpu_->Copy(*memory, values.data(), Bytes(values), stream_), IsOk());
    EXPECT_THAT(gpu_->Synchronize(stream_), IsOk());
    return *memory;
  }
  template <typename T>
  std::vector<T> Get(const void* from, size_t count) {
    std::vector<T> values(count);
    EXPECT_THAT(gpu_->Copy(values.data(), from, Bytes(values), stream_), IsOk());
    EXPECT_THAT(gpu_->Synchronize(stream_), IsOk());
    return values;
  }
  template <typename T>
  static int64_t Bytes(const std::vector<T>& values) {
    return static_cast<int64_t>(values.size() * sizeof(T));
  }

  Gpu::Stream stream_ = nullptr;
};

// The first time by copies, then by a table, whose tensors are others in the end.
TEST_P(PackerTest, TensorsGoIntoTheBufferAndBack) {
  TensorPacker packer(*gpu_, stream_);
  const std::vector<float> one = {1, 2, 3}, other = {4, 5}, gap(8, 9);
  std::vector<Segment> segments;
  for (int round = 0; round < 5; ++round) {
    if (round == 0 || round == 3) {
      segments = {{.data = Put(one), .count = 3, .first = 1, .dtype = DType::kF32},
                  {.data = Put(other), .count = 2, .first = 5, .dtype = DType::kF32}};
    }
    void* const buffer = Put(gap);
    ASSERT_THAT(packer.Choose(segments, DType::kF32), IsOk());
    EXPECT_EQ(packer.table() != nullptr, round != 0 && round != 3);
    ASSERT_THAT(packer.Pack(buffer), IsOk());
    EXPECT_EQ(Get<float>(buffer, 8), (std::vector<float>{9, 1, 2, 3, 9, 4, 5, 9}));
    const std::vector<float> results = {0, -1, -2, -3, 0, -4, -5, 0};
    ASSERT_THAT(packer.Unpack(Put(results)), IsOk());
    EXPECT_EQ(Get<float>(segments[0].data, 3), (std::vector<float>{-1, -2, -3}));
    EXPECT_EQ(Get<float>(segments[1].data, 2), (std::vector<float>{-4, -5}));
    ASSERT_THAT(gpu_->Copy(segments[0].data, one.data(), Bytes(one), stream_), IsOk());
    ASSERT_THAT(gpu_->Copy(segments[1].data, other.data(), Bytes(other), stream_), IsOk());
    ASSERT_THAT(gpu_->Synchronize(stream_), IsOk());
  }
}

// Which copies cannot do.
TEST_P(PackerTest, OtherDtypesAreConvertedTheFirstTimeToo) {
  TensorPacker packer(*gpu_, stream_);
  const std::vector<BFloat16> halves = {BFloat16(1.5f), BFloat16(-2.0f)};
  const std::vector<Segment> segments = {{.data = Put(halves), .count = 2, .first = 0, .dtype = DType::kBF16}};
  void* const buffer = Put(std::vector<float>(2));
  ASSERT_THAT(packer.Choose(segments, DType::kF32), IsOk());
  ASSERT_THAT(packer.Pack(buffer), IsOk());
  EXPECT_EQ(Get<float>(buffer, 2), (std::vector<float>{1.5f, -2.0f}));
  ASSERT_THAT(packer.Unpack(Put(std::vector<float>{3, 4})), IsOk());
  const std::vector<BFloat16> got = Get<BFloat16>(segments[0].data, 2);
  EXPECT_EQ(static_cast<float>(got[0]), 3);
  EXPECT_EQ(static_cast<float>(got[1]), 4);
}

TEST_P(PackerTest, PinnedPiecesAreUsedAgain) {
  PinnedPool pool(gpu_);
  PinnedPool::Piece* const small = *pool.Take(10);
  PinnedPool::Piece* const large = *pool.Take(10'000);
  EXPECT_GE(large->bytes, 10'000);
  EXPECT_NE(small, large);
  pool.Give(large);
  pool.Give(small);
  EXPECT_EQ(*pool.Take(9'000), large);
  EXPECT_EQ(*pool.Take(1), small);
  const std::vector<char> some(10'000, 'x');
  void* const there = Put(some);
  ASSERT_THAT(gpu_->Copy(large->memory.get(), there, 10'000, stream_), IsOk());
  ASSERT_THAT(gpu_->Record(large->copied, stream_), IsOk());
  ASSERT_THAT(gpu_->Synchronize(stream_), IsOk());
  EXPECT_EQ(std::memcmp(large->memory.get(), some.data(), some.size()), 0);
  pool.Give(small);
  pool.Give(large);
}

INSTANTIATE_TEST_SUITE_P(Gpus, PackerTest, testing::Values("fake", "cuda"),
                         [](const auto& info) { return info.param; });

TEST(PinnedPool, SizesThatGrowLeaveFewBehind) {
  const auto gpu = std::make_shared<FakeGpu>();
  {
    PinnedPool pool(gpu);
    for (int64_t pages = 1; pages <= 64; ++pages) {
      PinnedPool::Piece* const piece = *pool.Take(pages * 4096 - 5);
      EXPECT_GE(piece->bytes, pages * 4096 - 5);
      pool.Give(piece);
    }
    EXPECT_EQ(gpu->pinned(), 127 * 4096);
    PinnedPool::Piece* const least = *pool.Take(100);
    EXPECT_EQ(least->bytes, 4096);
    pool.Give(least);
  }
  EXPECT_EQ(gpu->pinned(), 0);
}

TEST(PinnedPool, APieceIsNobodysUntilItsCopyWasDone) {
  const auto gpu = std::make_shared<FakeGpu>();
  Gpu::Stream const stream = *gpu->CreateStream();
  {
    PinnedPool pool(gpu);
    PinnedPool::Piece* const piece = *pool.Take(100);
    gpu->Stall(true);
    std::vector<char> some(100, 'x');
    ASSERT_THAT(gpu->Copy(piece->memory.get(), some.data(), 100, stream), IsOk());
    ASSERT_THAT(gpu->Record(piece->copied, stream), IsOk());
    pool.Give(piece);
    PinnedPool::Piece* const another = *pool.Take(100);
    EXPECT_NE(another, piece);
    pool.Give(another);
    gpu->Stall(false);
    ASSERT_THAT(gpu->Synchronize(stream), IsOk());
    EXPECT_EQ(*pool.Take(100), piece) << "the first that rests";
    pool.Give(piece);
    EXPECT_EQ(gpu->pinned(), 8192);
  }
  EXPECT_EQ(gpu->pinned(), 0);
  gpu->DestroyStream(stream);
}

}  // namespace
}  // namespace gyre::device
