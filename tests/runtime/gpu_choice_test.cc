#include "runtime/gpu_choice.h"

#include <vector>

#include "gtest/gtest.h"

namespace gyre::internal {
namespace {

GpuOffer On(char gpu, int host, int nccl = 22809) {
  return {.uuid = {gpu}, .host = host, .nccl = nccl};
}

TEST(GpuChoice, RanksWithGpusOfTheirOwnGoByNccl) {
  EXPECT_EQ(ChooseGpuCarrier(std::vector{On('a', 0), On('b', 0)}), GpuCarrier::kNccl);
  EXPECT_EQ(ChooseGpuCarrier(std::vector{On('a', 0), On('b', 0), On('c', 1)}), GpuCarrier::kNccl);
}

TEST(GpuChoice, AllMustHaveTheSameNccl) {
  EXPECT_EQ(ChooseGpuCarrier(std::vector{On('a', 0), On('b', 0, 0)}), GpuCarrier::kStaged);
  EXPECT_EQ(ChooseGpuCarrier(std::vector{On('a', 0, 0), On('b', 0, 0)}), GpuCarrier::kStaged);
  EXPECT_EQ(ChooseGpuCarrier(std::vector{On('a', 0), On('b', 0, 22700)}), GpuCarrier::kStaged);
}

TEST(GpuChoice, RanksThatShareAGpuGoByIpcOnOneHost) {
  EXPECT_EQ(ChooseGpuCarrier(std::vector{On('a', 0), On('a', 0)}), GpuCarrier::kIpc);
  EXPECT_EQ(ChooseGpuCarrier(std::vector{On('a', 0, 0), On('b', 0), On('a', 0)}), GpuCarrier::kIpc);
  EXPECT_EQ(ChooseGpuCarrier(std::vector{On('a', 0), On('a', 0), On('b', 1)}), GpuCarrier::kStaged);
  EXPECT_EQ(ChooseGpuCarrier(std::vector(32, On('a', 3))), GpuCarrier::kIpc);
  EXPECT_EQ(ChooseGpuCarrier(std::vector(33, On('a', 3))), GpuCarrier::kStaged);
}

TEST(GpuChoice, OneRankAloneNeedsNobody) {
  EXPECT_EQ(ChooseGpuCarrier(std::vector{On('a', 2, 0)}), GpuCarrier::kAlone);
}

}  // namespace
}  // namespace gyre::internal
