// Rings of slots: what becomes of them, and of their areas, once an operation on them has failed.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/gpu_staging.h"
#include "device/fake_gpu.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"
#include "transport/shm/arena.h"

namespace gyre {
namespace {

using internal::staged::Ring;
using support::IsOk;

class Rings : public testing::Test {
 protected:
  static constexpr internal::staged::Sizes kSizes{.slot_bytes = 4096, .slots = 2};

  std::unique_ptr<internal::staged::Rings> Make() const {
    return std::make_unique<internal::staged::Rings>(gpu_, arena_, kSizes);
  }

  std::unique_ptr<Ring> Take() {
    auto ring = rings_->Take(kSizes.slot_bytes);
    EXPECT_THAT(ring, IsOk());
    return ring.ok() ? *std::move(ring) : nullptr;
  }

  // A number that the GPU brings to `to`.
  void Queue(int& to, device::Gpu::Stream stream) const {
    EXPECT_THAT(gpu_->Copy(&to, &number_, sizeof number_, stream), IsOk());
  }

  // The GPU does all that it can.
  void Settle() const { gpu_->Free(nullptr); }

  const int number_ = 7;
  const std::shared_ptr<device::FakeGpu> gpu_ = std::make_shared<device::FakeGpu>();
  const std::shared_ptr<internal::Arena> arena_ = *internal::Arena::Create(1 << 20);
  std::unique_ptr<internal::staged::Rings> rings_ = Make();
};

// A program's work goes on meanwhile, for as long as it likes.
TEST_F(Rings, AreasOfSpoiltOnesAreUsedAgainWithoutWaitingForTheGpu) {
  std::unique_ptr<Ring> ring = Take();
  const auto first = rings_->AreaOf(*ring, 1000);
  ASSERT_THAT(first, IsOk());
  rings_->Give(std::move(ring), true);
  Settle();

  device::Gpu::Stream const programs = *gpu_->CreateStream();
  int result = 0;
  gpu_->Hold(programs, true);
  Queue(result, programs);
  const int64_t pinned = gpu_->pinned();
  ring = Take();
  EXPECT_EQ(gpu_->blocked(), 0);
  EXPECT_EQ(gpu_->pinned(), pinned);  // the spoilt one is gone
  const auto second = rings_->AreaOf(*ring, 900);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(*second, *first);
  const auto larger = rings_->AreaOf(*ring, 3000);
  ASSERT_THAT(larger, IsOk());
  EXPECT_NE(*larger, *first);
  EXPECT_EQ(gpu_->allocations(), 2u);

  gpu_->Hold(programs, false);
  rings_->Give(std::move(ring), false);
  rings_.reset();
  gpu_->DestroyStream(programs);
  EXPECT_EQ(result, number_);
  EXPECT_EQ(gpu_->allocations(), 0u);
  EXPECT_EQ(gpu_->pinned(), 0);
}

TEST_F(Rings, ASpoiltOneStaysUntilAllOfItsStreamsAreDone) {
  for (const bool within : {false, true}) {
    std::unique_ptr<Ring> ring = Take();
    ASSERT_THAT(rings_->HaveWithin(*ring), IsOk());
    device::Gpu::Stream const late = within ? ring->within : ring->out;
    int result = 0;
    gpu_->Hold(late, true);
    Queue(result, late);
    rings_->Give(std::move(ring), true);
    Settle();
    const int blocked = gpu_->blocked();
    const int64_t pinned = gpu_->pinned();
    ring = Take();
    EXPECT_EQ(gpu_->blocked(), blocked) << within;
    EXPECT_GT(gpu_->pinned(), pinned) << within;
    gpu_->Hold(late, false);
    rings_->Give(std::move(ring), false);
    rings_ = Make();
    EXPECT_EQ(result, number_);
    EXPECT_EQ(gpu_->pinned(), 0);
  }
}

}  // namespace
}  // namespace gyre
