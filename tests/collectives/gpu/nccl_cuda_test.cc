// NCCL itself, of one rank, where there is a GPU. What needs several ranks cannot go wrong here: of one, NCCL launches
// in the calling thread, holds nothing for graphs, and takes no way of its own with registered memory.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/nccl/connection.h"
#include "collectives/nccl/factory.h"
#include "collectives/nccl/memory.h"
#include "device/gpu_under_test.h"
#include "gtest/gtest.h"
#include "support/slower.h"
#include "support/status_matchers.h"

namespace gyre::internal::nccl {
namespace {

using support::IsOk;

class NcclOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    auto gpu = device::OpenGpuUnderTest("cuda");
    if (absl::IsUnavailable(gpu.status())) GTEST_SKIP() << gpu.status().message();
    ASSERT_THAT(gpu, IsOk());
    const auto api = LoadApi();
    // A build with a compiler for CUDA may be one without NCCL: then there is no path.
    const bool may_be_absent = std::getenv("GYRE_TEST_NEEDS_GPU") == nullptr || std::string(NCCL_MODULE_PATH).empty();
    if (may_be_absent && !std::filesystem::exists(NCCL_MODULE_PATH) && absl::IsUnimplemented(api.status()))
      GTEST_SKIP() << api.status().message();
    ASSERT_THAT(api, IsOk());
    gpu_ = *std::move(gpu);
    api_ = *api;
  }

  // Looks until it is so, 30 s at most, or what becomes of them under a tool.
  template <typename Look>
  static bool Becomes(const Look& look) {
    const auto end = std::chrono::steady_clock::now() + support::Slower(std::chrono::seconds(30));
    while (!look()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  std::unique_ptr<Connection> Connected() {
    auto connection = std::make_unique<Connection>(*api_, gpu_, 0, 1);
    EXPECT_THAT(connection->Start(*api_->MakeId()), IsOk());
    EXPECT_TRUE(Becomes([&] { return connection->Poll().value_or(false); })) << connection->Poll().status();
    return connection;
  }

  // Of `count` floats at `memory`, halved.
  void Halve(Connection& connection, void* memory, int64_t count) {
    const Transfer transfer{.in = memory,
                            .out = memory,
                            .count = count,
                            .dtype = DType::kF32,
                            .combination = {.op = ReduceOp::kSum, .scale = 0.5}};
    ASSERT_THAT(connection.Launch({&transfer, 1}), IsOk());
    ASSERT_TRUE(Becomes([&] { return connection.Poll().value_or(false); })) << connection.Poll().status();
    ASSERT_THAT(connection.Watch(TimePoint::max(), "halving"), IsOk());
  }

  std::shared_ptr<device::Gpu> gpu_;
  Api* api_ = nullptr;
};

TEST_F(NcclOnCuda, ReducesAndEndsInOrder) {
  constexpr int64_t kCount = 1'000'003;
  const auto memory = gpu_->Allocate(kCount * 4);
  ASSERT_THAT(memory, IsOk());
  {
    const auto first = Connected(), second = Connected();
    std::vector<float> values(kCount, 8.0f);
    ASSERT_THAT(gpu_->Copy(*memory, values.data(), kCount * 4, first->stream()), IsOk());
    Halve(*first, *memory, kCount);
    ASSERT_TRUE(Becomes([&] { return first->Unfinished().value_or(1) == 0; }));
    Halve(*second, *memory, kCount);
    ASSERT_THAT(gpu_->Copy(values.data(), *memory, kCount * 4, second->stream()), IsOk());
    ASSERT_THAT(gpu_->Synchronize(second->stream()), IsOk());
    EXPECT_EQ(values, std::vector<float>(kCount, 2.0f));
    EXPECT_TRUE(Becomes([&] { return second->Unfinished().value_or(1) == 0; }));
  }
  gpu_->Free(*memory);
}

// In memory of NCCL's, which is registered; forgotten before it goes, or with the communicator. Of one rank, which NCCL
// lets do by itself: nothing here shows that several ranks' registered memory is used, or is deregistered as they need.
TEST_F(NcclOnCuda, RegistersMemory) {
  constexpr int64_t kCount = 3 << 20;
  const auto memory = MakeMemory(*api_, gpu_, 1 << 20);
  const auto allocator = AllocatorOf(memory);
  const auto first = allocator->Allocate(kCount * 4), second = allocator->Allocate(kCount * 4);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_TRUE(Has(*memory, *first));
  {
    const std::shared_ptr<Connection> connection = Connected();
    memory->Attach(connection);
    std::vector<float> values(kCount, 8.0f);
    for (void* const piece : {*first, *second}) {
      ASSERT_THAT(connection->Register(piece, kCount * 4), IsOk());
      ASSERT_THAT(gpu_->Copy(piece, values.data(), kCount * 4, connection->stream()), IsOk());
      Halve(*connection, piece, kCount);
    }
    ASSERT_THAT(gpu_->Copy(values.data(), *first, kCount * 4, connection->stream()), IsOk());
    ASSERT_THAT(gpu_->Synchronize(connection->stream()), IsOk());
    EXPECT_EQ(values, std::vector<float>(kCount, 4.0f));
    allocator->Free(*first);
    EXPECT_FALSE(connection->HasRegistered(*first));
    EXPECT_TRUE(connection->HasRegistered(*second));
  }
  allocator->Free(*second);
}

// Captured once, launched again and again; and discarded by whatever end of the communicator. Of one rank, whose calls
// NCCL makes at once in the calling thread, and keeps no account of in graphs: nothing here shows that a capture by
// NCCL's own threads goes well, or that an abort needs the graphs to be gone.
TEST_F(NcclOnCuda, IsCaptured) {
  constexpr int64_t kCount = 100'003;
  const auto memory = gpu_->Allocate(kCount * 4);
  ASSERT_THAT(memory, IsOk());
  const auto captured = *gpu_->CreateStream();
  for (const bool aborted : {false, true}) {
    const auto connection = Connected();
    std::vector<float> values(kCount, 64.0f);
    ASSERT_THAT(gpu_->Copy(*memory, values.data(), kCount * 4, connection->stream()), IsOk());
    Halve(*connection, *memory, kCount);
    const auto graph = gpu_->Capture(captured);
    ASSERT_THAT(graph, IsOk());
    const Transfer transfer{.in = *memory,
                            .out = *memory,
                            .count = kCount,
                            .dtype = DType::kF32,
                            .combination = {.op = ReduceOp::kSum, .scale = 0.5}};
    ASSERT_THAT(connection->Capture({&transfer, 1}, *graph, captured), IsOk());
    ASSERT_TRUE(Becomes([&] { return connection->Poll().value_or(false); })) << connection->Poll().status();
    ASSERT_THAT((*graph)->End(), IsOk());
    for (int i = 0; i < 3; ++i) ASSERT_THAT(connection->Launch(**graph), IsOk());
    ASSERT_THAT(gpu_->Copy(values.data(), *memory, kCount * 4, connection->stream()), IsOk());
    ASSERT_THAT(gpu_->Synchronize(connection->stream()), IsOk());
    EXPECT_EQ(values, std::vector<float>(kCount, 4.0f));
    if (aborted) connection->Abort();
    connection->End();
    EXPECT_FALSE((*graph)->Launch(captured).ok());
  }
  gpu_->DestroyStream(captured);
  gpu_->Free(*memory);
}

TEST_F(NcclOnCuda, CanBeAbortedInFlightAndWhileItConnects) {
  const auto memory = gpu_->Allocate(64 << 20);
  ASSERT_THAT(memory, IsOk());
  {
    const auto connection = Connected();
    ASSERT_THAT(gpu_->Zero(*memory, 64 << 20, connection->stream()), IsOk());  // else initcheck says so
    for (int i = 0; i < 20; ++i) Halve(*connection, *memory, 16 << 20);
    connection->Abort();
    EXPECT_FALSE(connection->Poll().ok());
    EXPECT_THAT(gpu_->Synchronize(connection->stream()), IsOk());
  }
  Connection alone(*api_, gpu_, 0, 2);  // the other rank does not come
  ASSERT_THAT(alone.Start(*api_->MakeId()), IsOk());
  EXPECT_FALSE(alone.Poll().value_or(true));
  alone.Abort();
  EXPECT_FALSE(alone.Poll().ok());
  gpu_->Free(*memory);
}

}  // namespace
}  // namespace gyre::internal::nccl
