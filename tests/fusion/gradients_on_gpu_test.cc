// Gradients on a fake GPU: in which order the program's streams come to what is done with them, where something fails.
#include "fusion/gradients_on_gpu.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "device/fake_gpu.h"
#include "fusion/layout.h"
#include "fusion/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::fusion {
namespace {

using device::Gpu;
using support::IsOk;
using support::MatchesStatus;
using testing::Each;

constexpr int64_t kCount = 100;

// Two gradients in one bucket, each on a stream of its own.
class GradientsOnGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    for (Gpu::Stream& stream : streams_) stream = *gpu_->CreateStream();
    event_ = *gpu_->CreateEvent();
    const Plan plan = PlanBySize(tensors_, std::vector{0, 1}, 1 << 20);
    layout_ = MakeLayout(tensors_, plan);
    part_ = MakeParts(tensors_, plan, layout_, INT64_MAX)[0];
    ASSERT_EQ(part_.tensors.size(), 2u);
    ASSERT_NO_FATAL_FAILURE(Make(1));
    memory_.assign(2, std::vector<float>(static_cast<size_t>(kCount), 1.0f));
  }

  void Make(int accumulate) {
    auto gradients = GradientsOnGpu::Create(gpu_, gpu_, tensors_, layout_, {streams_[0], streams_[1]}, accumulate);
    ASSERT_THAT(gradients, IsOk());
    gradients_ = *std::move(gradients);
  }

  void TearDown() override {
    gradients_.reset();
    gpu_->DestroyEvent(event_);
    for (Gpu::Stream const stream : streams_) gpu_->DestroyStream(stream);
  }

  // In memory of the program's.
  void GiveOn(int tensor, Gpu::Stream stream) {
    gradients_->Give(tensor,
                     {memory_[static_cast<size_t>(tensor)].data(), kCount, DType::kF32, {.gpu = 0, .stream = stream}});
  }

  // What the stream is given now is not done as long as the other one is held.
  void ExpectToComeBehind(Gpu::Stream held, Gpu::Stream stream, std::vector<float>& memory) {
    EXPECT_THAT(gpu_->Zero(memory.data(), kCount * 4, stream), IsOk());
    EXPECT_THAT(gpu_->Record(event_, stream), IsOk());
    for (int look = 0; look < 1000; ++look) ASSERT_FALSE(*gpu_->Done(event_));
    gpu_->Hold(held, false);
    EXPECT_THAT(gpu_->Synchronize(stream), IsOk());
    EXPECT_THAT(gpu_->Synchronize(held), IsOk());
    EXPECT_THAT(memory, Each(0.0f));
  }

  const std::vector<TensorInfo> tensors_ = {{"a", kCount, DType::kF32}, {"b", kCount, DType::kF32}};
  const std::shared_ptr<device::FakeGpu> gpu_ = std::make_shared<device::FakeGpu>(3);
  std::vector<Gpu::Stream> streams_ = std::vector<Gpu::Stream>(4);
  Gpu::Event event_ = nullptr;
  Layout layout_;
  Part part_;
  std::vector<std::vector<float>> memory_;  // by tensor
  std::unique_ptr<GradientsOnGpu> gradients_;
};

TEST_F(GradientsOnGpuTest, IsPreparedBehindEachStreamThatWasGivenOn) {
  for (const int late : {0, 1}) {
    for (const int tensor : {1, 0}) GiveOn(tensor, streams_[static_cast<size_t>(tensor)]);
    Gpu::Stream const held = streams_[static_cast<size_t>(late)];
    gpu_->Hold(held, true);
    gradients_->Mark(part_.tensors);
    ASSERT_THAT(gradients_->Prepare(part_), IsOk());
    ExpectToComeBehind(held, gradients_->own().stream, memory_[0]);
    EXPECT_THAT(gradients_->Finish(), IsOk());
    gradients_->Restart();
  }
}

// What was queued for the one that is given last is waited for too, whichever is marked.
TEST_F(GradientsOnGpuTest, OneMarkOfAStreamIsBehindAllThatWereGivenThere) {
  for (const std::vector<int>& order : {std::vector{0, 1}, {1, 0}}) {
    GiveOn(order[0], streams_[2]);
    EXPECT_THAT(gpu_->Synchronize(streams_[2]), IsOk());
    gpu_->Hold(streams_[2], true);
    GiveOn(order[1], streams_[2]);
    const int queued = gpu_->queued();
    gradients_->Mark(part_.tensors);
    EXPECT_EQ(gpu_->queued(), queued + 1);
    ASSERT_THAT(gradients_->Prepare(part_), IsOk());
    ExpectToComeBehind(streams_[2], gradients_->own().stream, memory_[0]);
    EXPECT_THAT(gradients_->Finish(), IsOk());
    gradients_->Restart();
  }
}

// The last ones: each of those before is awaited on the stream of the next one of its tensor.
TEST_F(GradientsOnGpuTest, WhatIsAddedUpHasOneMarkOfAStreamToo) {
  ASSERT_NO_FATAL_FAILURE(Make(2));
  for (int step = 0; step < 2; ++step) {
    for (const int tensor : {0, 1}) GiveOn(tensor, streams_[static_cast<size_t>(tensor)]);
    gradients_->Mark(part_.tensors);
    gradients_->Restart();
    for (const int tensor : {0, 1}) GiveOn(tensor, streams_[3]);
    EXPECT_THAT(gpu_->Synchronize(streams_[3]), IsOk());
    gpu_->Hold(streams_[3], true);
    gpu_->Hold(gradients_->own().stream, true);
    const int queued = gpu_->queued();
    gradients_->Mark(part_.tensors);
    EXPECT_EQ(gpu_->queued(), queued + 1);
    ASSERT_THAT(gradients_->Prepare(part_), IsOk());
    EXPECT_EQ(gpu_->queued(), queued + 2);
    gpu_->Hold(gradients_->own().stream, false);
    std::vector<float> sums(static_cast<size_t>(kCount));
    const TensorView buffer = gradients_->BufferOf(part_);
    EXPECT_THAT(gpu_->Copy(sums.data(), buffer.data, kCount * 4, buffer.device.stream), IsOk());
    ExpectToComeBehind(streams_[3], buffer.device.stream, memory_[0]);
    EXPECT_THAT(sums, Each(2.0f));
    EXPECT_THAT(gradients_->Finish(), IsOk());
    gradients_->Restart();
    memory_[0].assign(static_cast<size_t>(kCount), 1.0f);
  }
}

// An abort may end a capture while it is being made: what unpacks is then done for real.
TEST_F(GradientsOnGpuTest, WhatADiscardedCaptureLetsThroughComesBeforeTheProgram) {
  for (const int tensor : {0, 1}) GiveOn(tensor, streams_[static_cast<size_t>(tensor)]);
  gradients_->Mark(part_.tensors);
  ASSERT_THAT(gradients_->Prepare(part_), IsOk());
  gradients_->Deliver(part_);
  ASSERT_THAT(gradients_->Finish(), IsOk());
  ASSERT_THAT(gradients_->TryCapture(part_), IsOk());
  const auto capture = gradients_->BeginCapture(part_);
  ASSERT_THAT(capture, IsOk());
  capture->graph->Discard();
  Gpu::Stream const captured = capture->buffer.device.stream;
  gpu_->Hold(captured, true);
  EXPECT_FALSE(gradients_->EndCapture(part_).ok());
  gradients_->DropGraphs();
  EXPECT_THAT(gradients_->Finish(), IsOk());
  ExpectToComeBehind(captured, streams_[0], memory_[0]);
}

TEST_F(GradientsOnGpuTest, AStreamThatCannotWaitKeepsNoOtherFromIt) {
  gpu_->LetProgramCapture(streams_[2]);
  GiveOn(0, streams_[2]);
  GiveOn(1, streams_[3]);
  Gpu::Stream const own = gradients_->own().stream;
  gpu_->Hold(own, true);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_THAT(gradients_->Finish(), MatchesStatus(absl::StatusCode::kFailedPrecondition, "being captured"));
  }
  ExpectToComeBehind(own, streams_[3], memory_[1]);
}

}  // namespace
}  // namespace gyre::fusion
