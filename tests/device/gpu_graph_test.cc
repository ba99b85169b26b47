// Graphs, on the fake GPU and, where there is one, on a real one.
#include "device/gpu_graph.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "device/fake_gpu.h"
#include "device/gpu_under_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::device {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

constexpr int64_t kCount = 3000;
constexpr int64_t kBytes = kCount * 4;
using Floats = std::vector<float>;

class GpuGraphTest : public GpuUnderTest {
 protected:
  void SetUp() override {
    GpuUnderTest::SetUp();
    if (gpu_ == nullptr) return;
    captured_ = *gpu_->CreateStream();
    stream_ = *gpu_->CreateStream();
  }

  void TearDown() override {
    GpuUnderTest::TearDown();
    if (gpu_ == nullptr) return;
    gpu_->DestroyStream(captured_);
    gpu_->DestroyStream(stream_);
  }

  void* Put(const Floats& values) {
    const auto memory = gpu_->Allocate(kBytes);
    EXPECT_THAT(memory, IsOk());
    allocated_.push_back(*memory);
    Fill(*memory, values);
    return *memory;
  }

  void Fill(void* memory, const Floats& values) {
    EXPECT_THAT(gpu_->Copy(memory, values.data(), kBytes, stream_), IsOk());
    EXPECT_THAT(gpu_->Synchronize(stream_), IsOk());
  }

  Floats Get(const void* memory) {
    Floats values(kCount);
    EXPECT_THAT(gpu_->Copy(values.data(), memory, kBytes, stream_), IsOk());
    EXPECT_THAT(gpu_->Synchronize(stream_), IsOk());
    return values;
  }

  std::unique_ptr<Gpu::Table> TableOf(void* tensor) {
    const Segment segment{.data = tensor, .count = kCount, .first = 0, .dtype = DType::kF32};
    auto table = gpu_->Upload(*MakePackTable(std::vector{segment}, DType::kF32, 1 << 12), stream_);
    EXPECT_THAT(table, IsOk());
    return *std::move(table);
  }

  // Packs `table` into `buffer`, doubles it there, and unpacks it.
  std::shared_ptr<GpuGraph> Captured(const Gpu::Table& table, void* buffer) {
    auto graph = gpu_->Capture(captured_);
    EXPECT_THAT(graph, IsOk());
    EXPECT_THAT(gpu_->Pack(table, buffer, 1, captured_), IsOk());
    const void* const sources[] = {buffer, buffer};
    void* const destinations[] = {buffer};
    EXPECT_THAT(gpu_->Reduce({}, sources, destinations, kCount, captured_), IsOk());
    EXPECT_THAT(gpu_->Unpack(table, buffer, 1, captured_), IsOk());
    return *std::move(graph);
  }

  Gpu::Stream captured_ = nullptr, stream_ = nullptr;
};

TEST_P(GpuGraphTest, WhatIsCapturedIsDoneByLaunchesAlone) {
  void* const tensor = Put(Floats(kCount, 1.0f));
  void* const buffer = Put(Floats(kCount, 7.0f));
  auto table = TableOf(tensor);
  const auto graph = Captured(*table, buffer);
  EXPECT_THAT(graph->Launch(stream_), MatchesStatus(StatusCode::kFailedPrecondition, ""));
  ASSERT_THAT(graph->End(), IsOk());
  EXPECT_EQ(Get(tensor), Floats(kCount, 1.0f));
  EXPECT_EQ(Get(buffer), Floats(kCount, 7.0f));
  for (int i = 0; i < 5; ++i) ASSERT_THAT(graph->Launch(stream_), IsOk());
  EXPECT_EQ(Get(tensor), Floats(kCount, 32.0f));
  // The stream that it was captured on is a stream again, on which it can be launched too: behind the launches before.
  ASSERT_THAT(graph->Launch(stream_), IsOk());
  ASSERT_THAT(graph->Launch(captured_), IsOk());
  ASSERT_THAT(gpu_->Synchronize(captured_), IsOk());
  EXPECT_EQ(Get(tensor), Floats(kCount, 128.0f));
}

TEST_P(GpuGraphTest, TablesChangeOrAreLeftOut) {
  void* const one = Put(Floats(kCount, 1.0f));
  void* const other = Put(Floats(kCount, 10.0f));
  void* const buffer = Put(Floats(kCount, 7.0f));
  auto of_one = TableOf(one), of_other = TableOf(other);
  const auto graph = Captured(*of_one, buffer);
  ASSERT_THAT(graph->End(), IsOk());
  ASSERT_THAT(graph->Update(of_other.get()), IsOk());
  of_one.reset();  // which nothing goes by any more
  ASSERT_THAT(graph->Launch(stream_), IsOk());
  EXPECT_EQ(Get(one), Floats(kCount, 1.0f));
  EXPECT_EQ(Get(other), Floats(kCount, 20.0f));
  ASSERT_THAT(graph->Update(nullptr), IsOk());
  of_other.reset();
  ASSERT_THAT(graph->Launch(stream_), IsOk());
  EXPECT_EQ(Get(other), Floats(kCount, 20.0f));
  EXPECT_EQ(Get(buffer), Floats(kCount, 40.0f));
  of_one = TableOf(one);
  ASSERT_THAT(graph->Update(of_one.get()), IsOk());
  ASSERT_THAT(graph->Launch(stream_), IsOk());
  EXPECT_EQ(Get(one), Floats(kCount, 2.0f));
}

TEST_P(GpuGraphTest, ATableMayGoOnceItWasLaunched) {
  void* const tensor = Put(Floats(kCount, 1.0f));
  void* const buffer = Put(Floats(kCount, 7.0f));
  auto table = TableOf(tensor);
  auto graph = Captured(*table, buffer);
  ASSERT_THAT(graph->End(), IsOk());
  ASSERT_THAT(graph->Launch(stream_), IsOk());
  graph.reset();
  table.reset();
  EXPECT_EQ(Get(tensor), Floats(kCount, 2.0f));
}

TEST_P(GpuGraphTest, OneThatIsDiscardedIsGone) {
  void* const tensor = Put(Floats(kCount, 1.0f));
  void* const buffer = Put(Floats(kCount, 7.0f));
  auto table = TableOf(tensor);
  const auto graph = Captured(*table, buffer);
  ASSERT_THAT(graph->End(), IsOk());
  ASSERT_THAT(graph->Launch(stream_), IsOk());
  graph->Discard();
  EXPECT_THAT(graph->Launch(stream_), MatchesStatus(StatusCode::kFailedPrecondition, ""));
  EXPECT_THAT(graph->Update(table.get()), MatchesStatus(StatusCode::kFailedPrecondition, ""));
  EXPECT_EQ(Get(tensor), Floats(kCount, 2.0f));
}

TEST_P(GpuGraphTest, ACaptureThatIsGivenUpLeavesTheStreamAsItWas) {
  void* const tensor = Put(Floats(kCount, 1.0f));
  void* const buffer = Put(Floats(kCount, 7.0f));
  auto table = TableOf(tensor);
  Captured(*table, buffer)->Discard();
  Captured(*table, buffer).reset();
  ASSERT_THAT(gpu_->Pack(*table, buffer, 1, captured_), IsOk());
  ASSERT_THAT(gpu_->Synchronize(captured_), IsOk());
  EXPECT_EQ(Get(buffer), Floats(kCount, 1.0f));
}

TEST_P(GpuGraphTest, ToWaitForWhatIsCapturedSpoilsIt) {
  void* const tensor = Put(Floats(kCount, 1.0f));
  void* const buffer = Put(Floats(kCount, 7.0f));
  auto table = TableOf(tensor);
  const auto graph = Captured(*table, buffer);
  EXPECT_FALSE(gpu_->Synchronize(captured_).ok());
  EXPECT_FALSE(graph->End().ok());
  EXPECT_THAT(graph->Launch(stream_), MatchesStatus(StatusCode::kFailedPrecondition, ""));
  EXPECT_THAT(gpu_->Synchronize(captured_), IsOk());
}

TEST_P(GpuGraphTest, EventsAndWhatIsCapturedDoNotMix) {
  void* const tensor = Put(Floats(kCount, 1.0f));
  void* const buffer = Put(Floats(kCount, 7.0f));
  auto table = TableOf(tensor);
  const auto event = *gpu_->CreateEvent();
  ASSERT_THAT(gpu_->Record(event, stream_), IsOk());
  const auto graph = Captured(*table, buffer);
  EXPECT_THAT(gpu_->Record(event, captured_), MatchesStatus(StatusCode::kFailedPrecondition, "being captured"));
  EXPECT_THAT(gpu_->Wait(captured_, event), MatchesStatus(StatusCode::kFailedPrecondition, "being captured"));
  EXPECT_THAT(graph->End(), IsOk());  // nothing came of it
  ASSERT_THAT(graph->Launch(stream_), IsOk());
  EXPECT_EQ(Get(tensor), Floats(kCount, 2.0f));
  gpu_->DestroyEvent(event);
}

// Several captures at once, each on a stream of its own, with other work between them.
TEST_P(GpuGraphTest, CapturesDoNotTouchOtherStreams) {
  void* const one = Put(Floats(kCount, 1.0f));
  void* const other = Put(Floats(kCount, 10.0f));
  void* const buffer = Put(Floats(kCount, 7.0f));
  auto of_one = TableOf(one), of_other = TableOf(other);
  const auto second_stream = *gpu_->CreateStream();
  auto first = gpu_->Capture(captured_), second = gpu_->Capture(second_stream);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  ASSERT_THAT(gpu_->Pack(*of_one, buffer, 2, captured_), IsOk());
  ASSERT_THAT(gpu_->Pack(*of_other, buffer, 2, second_stream), IsOk());
  Fill(one, Floats(kCount, 3.0f));
  void* const more = Put(Floats(kCount, 5.0f));
  gpu_->Free(more);
  allocated_.pop_back();
  ASSERT_THAT((*second)->End(), IsOk());
  ASSERT_THAT((*first)->End(), IsOk());
  EXPECT_EQ(Get(buffer), Floats(kCount, 7.0f));
  ASSERT_THAT((*second)->Launch(stream_), IsOk());
  EXPECT_EQ(Get(buffer), Floats(kCount, 20.0f));
  ASSERT_THAT((*first)->Launch(stream_), IsOk());
  EXPECT_EQ(Get(buffer), Floats(kCount, 6.0f));
  gpu_->DestroyStream(second_stream);
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuGraphTest, ::testing::Values("fake", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gyre::device
