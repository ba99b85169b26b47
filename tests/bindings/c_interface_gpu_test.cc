// The C interface with memory on GPUs: fake ones, which a C program cannot have.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gyre/c/gyre.h"
#include "runtime/gpu_fixture.h"

namespace gyre {
namespace {

using support::GpuRank;
using support::RunOnGpus;

constexpr unsigned kSeeds = 4;
constexpr int64_t kCount = 1300;  // more than a slot of the fixture's has room for
constexpr int kInvalidArgument = 3;

gyre_communicator* WorldOf(const GpuRank& rank) {
  return reinterpret_cast<gyre_communicator*>(&rank.world());
}

gyre_device On(void* stream) {
  return {.gpu = 0, .stream = stream};
}

MATCHER(IsGood, "is good") {
  *result_listener << arg.message;
  return arg.code == 0;
}

MATCHER_P(IsRefused, text, "is kInvalidArgument and says why") {
  *result_listener << arg.code << ": " << arg.message;
  return arg.code == kInvalidArgument && std::string(arg.message).find(text) != std::string::npos;
}

float ValueOf(int rank, int64_t i) {
  return static_cast<float>((rank + 1) * (i % 100 + 1));
}

std::vector<float> ValuesOf(int rank) {
  std::vector<float> values(kCount);
  for (int64_t i = 0; i < kCount; ++i) values[static_cast<size_t>(i)] = ValueOf(rank, i);
  return values;
}

// A step is queued on a stream without waiting for it, read after all of them.
TEST(CInterfaceGpuTest, CollectivesAreInTheOrderOfTheStream) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    RunOnGpus({2}, seed, [](GpuRank& rank) {
      gyre_communicator* const world = WorldOf(rank);
      void* const other = *rank.gpu->CreateStream();
      auto in = rank.Tensor(DType::kF32, kCount, other), out = rank.Tensor(DType::kF32, kCount, other);
      auto all = rank.Tensor(DType::kF32, 2 * kCount, other);
      const std::vector<float> mine = ValuesOf(rank.rank);
      std::vector<float> sum(kCount), again(kCount), gathered(2 * kCount), sent(kCount);
      rank.Put(in.view, mine.data());
      ASSERT_THAT(gyre_all_reduce_on(world, in.view.data, out.view.data, kCount, GYRE_F32, GYRE_SUM, On(other)),
                  IsGood());
      rank.Get(out.view, sum.data());
      ASSERT_THAT(gyre_all_gather_on(world, in.view.data, all.view.data, kCount, GYRE_F32, On(other)), IsGood());
      rank.Get(all.view, gathered.data());
      ASSERT_THAT(gyre_broadcast_on(world, in.view.data, kCount, GYRE_F32, 1, On(other)), IsGood());
      rank.Get(in.view, sent.data());
      ASSERT_THAT(gyre_all_reduce_on(world, in.view.data, in.view.data, kCount, GYRE_F32, GYRE_MAX, On(other)),
                  IsGood());
      rank.Get(in.view, again.data());
      rank.Settle(other);
      for (int64_t i = 0; i < kCount; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_EQ(sum[at], ValueOf(0, i) + ValueOf(1, i)) << i;
        ASSERT_EQ(gathered[at], ValueOf(0, i)) << i;
        ASSERT_EQ(gathered[at + kCount], ValueOf(1, i)) << i;
        ASSERT_EQ(sent[at], ValueOf(1, i)) << i;
        ASSERT_EQ(again[at], ValueOf(1, i)) << i;
      }
      rank.gpu->DestroyStream(other);
    });
  }
}

TEST(CInterfaceGpuTest, RanksOnTheHostAndOnGpusFindOut) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    auto tensor = rank.Tensor(DType::kF32, 10, rank.stream);
    std::array<float, 10> host = {};
    gyre_communicator* const world = WorldOf(rank);
    const gyre_status status = rank.rank == 1 ? gyre_all_reduce(world, host.data(), host.data(), 10, GYRE_F32, GYRE_SUM)
                                              : gyre_all_reduce_on(world, tensor.view.data, tensor.view.data, 10,
                                                                   GYRE_F32, GYRE_SUM, On(rank.stream));
    EXPECT_THAT(status, IsRefused("10 elements on a GPU"));
    EXPECT_THAT(gyre_broadcast_on(world, host.data(), 10, GYRE_F32, 0, {.gpu = -2, .stream = nullptr}),
                IsRefused("GPU -2"));
  });
}

// One gradient at home and one in the program's memory, each on a stream of its own.
TEST(CInterfaceGpuTest, TheReducerAveragesOnGpus) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    RunOnGpus({2}, seed, [](GpuRank& rank) {
      void* const other = *rank.gpu->CreateStream();
      gyre_reducer* reducer = nullptr;
      int home = -1, own = -1;
      const std::array<int64_t, 2> shape = {13, 100};
      ASSERT_THAT(gyre_reducer_create(WorldOf(rank), &reducer), IsGood());
      ASSERT_THAT(gyre_reducer_register_on(reducer, "home", shape.data(), 2, GYRE_F32, On(rank.stream), &home),
                  IsGood());
      ASSERT_THAT(gyre_reducer_register_on(reducer, "own", shape.data(), 2, GYRE_F32, On(other), &own), IsGood());
      ASSERT_THAT(gyre_reducer_start(reducer), IsGood());
      const TensorView at_home(gyre_reducer_gradient(reducer, home), kCount, DType::kF32, rank.device());
      ASSERT_NE(at_home.data, nullptr);
      auto given = rank.Tensor(DType::kF32, kCount, other);
      const std::vector<float> mine = ValuesOf(rank.rank), others = ValuesOf(1 - rank.rank);
      std::vector<std::vector<float>> results;
      results.reserve(8);
      for (int step = 0; step < 4; ++step) {
        rank.Put(at_home, mine.data());
        ASSERT_THAT(gyre_reducer_ready(reducer, home), IsGood());
        // The second gradient is this rank's in even steps, and the other one's in odd steps.
        rank.Put(given.view, step % 2 == 0 ? mine.data() : others.data());
        ASSERT_THAT(gyre_reducer_ready_at_on(reducer, own, given.view.data, kCount, GYRE_F32, On(other)), IsGood());
        ASSERT_THAT(gyre_reducer_wait(reducer), IsGood());
        rank.Get(at_home, results.emplace_back(kCount).data());
        rank.Get(given.view, results.emplace_back(kCount).data());
      }
      rank.Settle(rank.stream);
      rank.Settle(other);
      for (const std::vector<float>& result : results) {
        for (int64_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(result[static_cast<size_t>(i)], (ValueOf(0, i) + ValueOf(1, i)) / 2) << i;
        }
      }
      gyre_reducer_destroy(reducer);
      rank.gpu->DestroyStream(other);
    });
  }
}

TEST(CInterfaceGpuTest, TheReducerStaysOnOneDevice) {
  RunOnGpus({1}, 1, [](GpuRank& rank) {
    gyre_reducer* reducer = nullptr;
    int first = -1, second = -1;
    const int64_t count = 10;
    std::array<float, 10> host = {};
    ASSERT_THAT(gyre_reducer_create(WorldOf(rank), &reducer), IsGood());
    ASSERT_THAT(gyre_reducer_register_on(reducer, "a", &count, 1, GYRE_F32, On(rank.stream), &first), IsGood());
    EXPECT_THAT(gyre_reducer_register(reducer, "b", &count, 1, GYRE_F32, &second), IsRefused("\"b\" is on the host"));
    EXPECT_THAT(gyre_reducer_register_on(reducer, "b", &count, 1, GYRE_F32, {.gpu = -2, .stream = nullptr}, &second),
                IsRefused("\"b\" is on GPU -2"));
    EXPECT_EQ(second, -1);
    ASSERT_THAT(gyre_reducer_start(reducer), IsGood());
    EXPECT_THAT(gyre_reducer_ready_at(reducer, first, host.data(), 10, GYRE_F32), IsRefused("memory of the host"));
    gyre_reducer_destroy(reducer);
  });
}

}  // namespace
}  // namespace gyre
