#include "runtime/gpu_choice.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace gyre::internal {
namespace {

GpuOffer On(char gpu, int host, int nccl = 22809) {
  return {.uuid = {gpu}, .place = static_cast<unsigned char>(gpu), .host = host, .nccl = nccl};
}

// A slice of the GPU at that place.
GpuOffer Slice(char slice, int64_t place, int host, int nccl = 22809) {
  return {.uuid = {slice}, .place = place, .host = host, .nccl = nccl};
}

GpuCarrier CarrierOf(const std::vector<GpuOffer>& offers) {
  return ChooseGpuCarrier(offers).carrier;
}

TEST(GpuChoice, RanksWithGpusOfTheirOwnGoByNccl) {
  EXPECT_EQ(CarrierOf({On('a', 0), On('b', 0)}), GpuCarrier::kNccl);
  EXPECT_EQ(CarrierOf({On('a', 0), On('b', 0), On('c', 1)}), GpuCarrier::kNccl);
  EXPECT_EQ(CarrierOf({On('a', 0), On('b', 0), On('c', 1), On('d', 1)}), GpuCarrier::kNccl);
}

TEST(GpuChoice, AllMustHaveTheSameNccl) {
  EXPECT_EQ(CarrierOf({On('a', 0), On('b', 0, 0)}), GpuCarrier::kStaged);
  EXPECT_EQ(CarrierOf({On('a', 0, 0), On('b', 0, 0)}), GpuCarrier::kStaged);
  EXPECT_EQ(CarrierOf({On('a', 0), On('b', 0, 22700)}), GpuCarrier::kStaged);
}

TEST(GpuChoice, RanksThatShareAGpuGoByIpcOnOneHost) {
  EXPECT_EQ(CarrierOf({On('a', 0), On('a', 0)}), GpuCarrier::kIpc);
  EXPECT_EQ(CarrierOf({On('a', 0, 0), On('b', 0), On('a', 0)}), GpuCarrier::kIpc);
  EXPECT_EQ(CarrierOf(std::vector(32, On('a', 3))), GpuCarrier::kIpc);
  EXPECT_EQ(CarrierOf(std::vector(33, On('a', 3))), GpuCarrier::kStaged);
}

// Which of them reach each other's memory only CUDA knows.
TEST(GpuChoice, RanksOnSlicesOfOneGpuGoByIpc) {
  EXPECT_EQ(CarrierOf({Slice('a', 7, 0), Slice('b', 7, 0)}), GpuCarrier::kIpc);
  EXPECT_EQ(CarrierOf({Slice('a', 7, 0), Slice('b', 8, 0), Slice('c', 7, 0)}), GpuCarrier::kIpc);
  EXPECT_EQ(CarrierOf({Slice('a', 7, 0), Slice('b', 8, 0)}), GpuCarrier::kNccl);
}

// There NCCL tells GPUs apart by the host as well.
TEST(GpuChoice, PlacesAreAHostsOwn) {
  EXPECT_EQ(CarrierOf({Slice('a', 7, 0), Slice('b', 7, 1)}), GpuCarrier::kNccl);
  EXPECT_EQ(CarrierOf({Slice('a', 7, 0), Slice('b', 8, 0), Slice('c', 7, 1), Slice('d', 8, 1)}), GpuCarrier::kNccl);
  EXPECT_EQ(CarrierOf({Slice('a', 7, 0), Slice('a', 7, 1)}), GpuCarrier::kStaged);  // one GPU, two hosts
}

TEST(GpuChoice, OneRankAloneNeedsNobody) {
  EXPECT_EQ(CarrierOf({On('a', 2, 0)}), GpuCarrier::kAlone);
}

using Within = std::map<int32_t, GpuCarrier>;

// Of hosts that go hierarchically.
Within WithinOf(const std::vector<GpuOffer>& offers) {
  const GpuChoice choice = ChooseGpuCarrier(offers);
  EXPECT_EQ(choice.carrier, GpuCarrier::kHierarchical);
  return choice.within;
}

TEST(GpuChoice, HostsOfSeveralRanksExchangeOnTheirGpusFirst) {
  EXPECT_EQ(WithinOf({On('a', 0), On('a', 0), On('b', 1), On('b', 1)}),
            (Within{{0, GpuCarrier::kIpc}, {1, GpuCarrier::kIpc}}));
  EXPECT_EQ(WithinOf({On('a', 0), On('a', 0), On('b', 1)}), (Within{{0, GpuCarrier::kIpc}, {1, GpuCarrier::kAlone}}));
  EXPECT_EQ(WithinOf({On('a', 4), On('b', 7), On('c', 7), On('d', 2), On('d', 2), On('e', 2)}),
            (Within{{4, GpuCarrier::kAlone}, {7, GpuCarrier::kNccl}, {2, GpuCarrier::kIpc}}));
  EXPECT_EQ(WithinOf({Slice('a', 7, 0), Slice('b', 7, 0), Slice('c', 7, 1), Slice('d', 8, 1)}),
            (Within{{0, GpuCarrier::kIpc}, {1, GpuCarrier::kNccl}}));
}

// What is NCCL's on each host, but is not one NCCL over all.
TEST(GpuChoice, HostsMayHaveDifferentNccls) {
  EXPECT_EQ(WithinOf({On('a', 0), On('b', 0), On('c', 1, 22700), On('d', 1, 22700)}),
            (Within{{0, GpuCarrier::kNccl}, {1, GpuCarrier::kNccl}}));
  EXPECT_EQ(WithinOf({On('a', 0), On('b', 0), On('c', 1, 0)}),
            (Within{{0, GpuCarrier::kNccl}, {1, GpuCarrier::kAlone}}));
}

// Ranks of a host are those of one number, wherever they stand among the others.
TEST(GpuChoice, RanksOfHostsMayAlternate) {
  EXPECT_EQ(WithinOf({On('a', 0), On('b', 1), On('a', 0), On('b', 1)}),
            (Within{{0, GpuCarrier::kIpc}, {1, GpuCarrier::kIpc}}));
}

TEST(GpuChoice, OneHostThatCannotIsEnoughToStage) {
  // Without NCCL on one of its ranks, whose GPUs differ.
  EXPECT_EQ(CarrierOf({On('a', 0), On('b', 0, 0), On('c', 1), On('d', 1)}), GpuCarrier::kStaged);
  EXPECT_EQ(CarrierOf({On('a', 0), On('a', 0), On('c', 1), On('d', 1, 22700)}), GpuCarrier::kStaged);
  // With more ranks on its GPUs than IPC takes.
  std::vector<GpuOffer> offers(33, On('a', 0));
  offers.push_back(On('b', 1));
  EXPECT_EQ(CarrierOf(offers), GpuCarrier::kStaged);
}

TEST(GpuChoice, HostsOfOneRankEachHaveNothingToExchangeFirst) {
  EXPECT_EQ(CarrierOf({On('a', 0), On('b', 1, 0)}), GpuCarrier::kStaged);
  EXPECT_EQ(CarrierOf({On('a', 0, 0), On('b', 1, 0), On('c', 2, 0)}), GpuCarrier::kStaged);
}

// What one host's ranks would go by says nothing where there is one host.
TEST(GpuChoice, OneHostIsNoHierarchy) {
  EXPECT_EQ(CarrierOf({On('a', 0, 0), On('b', 0, 0), On('c', 0, 0)}), GpuCarrier::kStaged);
}

std::string WhyNot(const std::vector<GpuOffer>& offers) {
  return WhyNotNccl(offers, [](int rank) { return absl::StrCat("rank ", rank); });
}

TEST(GpuChoice, SaysWhatKeepsRanksFromNccl) {
  EXPECT_EQ(WhyNot({On('a', 0), On('b', 0)}), "");
  EXPECT_EQ(WhyNot({On('a', 0), On('b', 0, 0), On('c', 1, 0)}), "rank 1 has no NCCL");
  EXPECT_EQ(WhyNot({On('a', 0, 22809), On('b', 1, 0), On('c', 1, 22703)}), "rank 1 has no NCCL");
  EXPECT_EQ(WhyNot({On('a', 0, 0), On('b', 0, 0)}), "rank 0 has no NCCL");
  EXPECT_EQ(WhyNot({On('a', 0, 22809), On('b', 0, 22809), On('c', 0, 22703), On('d', 0, 21914)}),
            "rank 0 has NCCL 2.28.9, rank 2 has 2.27.3");
}

// Nobody who has none would go by it.
TEST(GpuChoice, SaysNothingOfNcclWhereItWouldNotHelp) {
  EXPECT_EQ(WhyNot({On('a', 0, 0)}), "");
  EXPECT_EQ(WhyNot({On('a', 0, 0), On('a', 0, 0)}), "");
  EXPECT_EQ(WhyNot(std::vector(33, On('a', 0, 0))), "");
  EXPECT_EQ(WhyNot({Slice('a', 7, 0, 0), Slice('b', 7, 0, 0)}), "");
}

}  // namespace
}  // namespace gyre::internal
