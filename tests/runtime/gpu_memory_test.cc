// Memory on GPUs where NCCL is: of NCCL's, and registered with communicators as these use it.
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/gpu_trainer.h"
#include "runtime/gpus_with_nccl.h"

namespace gyre {
namespace {

using support::GpuRank;
using support::GpuTrainer;
using support::HostSizes;
using support::IsOk;
using support::RunByNccl;

// All ranks have come to the same point, of which `seen` is then the same on all.
template <typename Number>
void ExpectOnAll(GpuRank& rank, const Number& seen, int expected) {
  rank.Meet();
  EXPECT_EQ(seen, expected);
  rank.Meet();
}

TEST(GpuMemoryTest, IsRegisteredWithTheCommunicatorsThatUseIt) {
  RunByNccl({2}, 1, [](GpuRank& rank) {
    std::optional tensor = rank.Tensor(DType::kF32, 1000, rank.stream);  // before anything was chosen
    ExpectOnAll(rank, rank.nccl->registrations, 0);
    std::vector<float> ones(1000, 1.0f), got(1000);
    for (const float expected : {2.0f, 4.0f, 8.0f}) {
      if (expected == 2.0f) rank.Put(tensor->view, ones.data());
      ASSERT_THAT(rank.world().AllReduce(tensor->view), IsOk());
      rank.Get(tensor->view, got.data());
      rank.Settle(rank.stream);
      EXPECT_THAT(got, testing::Each(expected));
    }
    ExpectOnAll(rank, rank.nccl->registrations, 2);
    {
      auto part = *rank.world().Split(std::vector<int>{0, 1});
      ASSERT_THAT(part->AllReduce(tensor->view), IsOk());
      ExpectOnAll(rank, rank.nccl->registered, 4);
    }
    tensor.reset();  // with the call under way
    ExpectOnAll(rank, rank.nccl->registered, 0);
  });
}

TEST(GpuMemoryTest, ReducersHaveTheirs) {
  for (const HostSizes& hosts : {HostSizes{2}, HostSizes{1, 1}}) {
    RunByNccl(hosts, 1, [](GpuRank& rank) {
      GpuTrainer trainer(rank, {{{1000}}, {{20}}});
      ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = 2000, .graphs = true}), IsOk());
      for (int64_t step = 1; step <= 6; ++step) {
        for (size_t p = 0; p < 2; ++p) ASSERT_THAT(trainer.Give(p, step, p == 0), IsOk());
        ASSERT_THAT(trainer.reducer->Wait(), IsOk());
        for (size_t p = 0; p < 2; ++p) trainer.Expect(p, 1, {step});
      }
      trainer.Compare();
      ExpectOnAll(rank, rank.nccl->registered, 2);
      trainer.reducer.reset();
      ExpectOnAll(rank, rank.nccl->registered, 0);
    });
  }
}

// One of them has none: all do without.
TEST(GpuMemoryTest, ReducersWithoutMemoryOfNcclsOnEachRank) {
  for (const HostSizes& hosts : {HostSizes{2}, HostSizes{1, 1}}) {
    RunByNccl(hosts, 1, [](GpuRank& rank) {
      GpuTrainer trainer(rank, {{{1000}}});
      if (rank.rank.rank == 0) rank.nccl->allocations_left = 3;  // the program's two, and one reducer's
      rank.Meet();
      ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .graphs = true}), IsOk());
      for (int64_t step = 1; step <= 5; ++step) {
        ASSERT_THAT(trainer.Give(0, step, step % 2 == 0), IsOk());
        ASSERT_THAT(trainer.reducer->Wait(), IsOk());
        trainer.Expect(0, 1, {step});
      }
      trainer.Compare();
      ExpectOnAll(rank, rank.nccl->registrations, 0);
      EXPECT_EQ(rank.nccl->pieces(), 3u);
      rank.Meet();  // nobody has let go of any
    });
  }
}

TEST(GpuMemoryTest, OneRankAloneHasThatOfItsGpu) {
  RunByNccl({1}, 1, [](GpuRank& rank) {
    auto tensor = rank.Tensor(DType::kF32, 1000, rank.stream);
    ASSERT_THAT(rank.world().AllReduce(tensor.view), IsOk());
    EXPECT_EQ(rank.nccl->pieces(), 0u);
  });
}

}  // namespace
}  // namespace gyre
