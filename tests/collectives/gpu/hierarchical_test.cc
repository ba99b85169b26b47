// The hierarchical backend: all its calls, on hosts whose ranks exchange in every way.
#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "collectives/gpu/hierarchical_fixture.h"
#include "gmock/gmock.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::IsOk;

using internal::Call;
using internal::CallKind;
using testing::Each;

class Hierarchical : public HierarchicalOnGpus {};

TEST_F(Hierarchical, DoesWhatEveryCallSays) {
  const std::vector<std::vector<Host>> worlds = {
      {{2, By::kIpc}, {2, By::kIpc}},   {{2, By::kNccl}, {2, By::kNccl}},
      {{3, By::kNccl}, {3, By::kIpc}},  {{1, By::kAlone}, {2, By::kNccl}, {3, By::kIpc}},
      {{3, By::kIpc}, {1, By::kAlone}}, {{2, By::kIpc}, {2, By::kNccl}, {2, By::kIpc}},
  };
  for (size_t world = 0; world < worlds.size(); ++world) {
    Start(worlds[world], world + 1);
    std::set<CallKind> seen;
    const auto taken = [&](const Call& call) {
      if (!backends_[0]->Takes(call)) return false;
      seen.insert(call.kind);
      return true;
    };
    for (int i = 0; i < 80; ++i) {
      ASSERT_EQ(RunRandomCall(*ranks_, backends_, taken), "") << "call " << i << " of world " << world;
    }
    const bool even = world != 3 && world != 4;
    EXPECT_EQ(seen.size(), even ? 4u : 2u);
    End();
  }
}

// Every element type and reduction that the ways within the hosts have in common, in place and out of place.
TEST_F(Hierarchical, TakesWhatTheBackendsOfAllHostsTake) {
  Start({{2, By::kIpc}, {2, By::kNccl}});
  std::vector<int16_t> shorts(1000);
  std::vector<float> floats(1000);
  const auto takes = [this](const Call& call) {
    const bool first = backends_[0]->Takes(call);
    for (const auto& backend : backends_) EXPECT_EQ(backend->Takes(call), first);
    return first;
  };
  EXPECT_TRUE(takes({.kind = CallKind::kAllReduce, .in = floats, .out = floats}));
  EXPECT_FALSE(takes({.kind = CallKind::kAllReduce, .in = shorts, .out = shorts}));  // NCCL does not
  EXPECT_TRUE(takes({.kind = CallKind::kBroadcast, .in = shorts, .out = shorts}));
  EXPECT_FALSE(takes({.kind = CallKind::kAllReduce, .in = floats, .out = floats, .op = ReduceOp::kAdasum}));
  EXPECT_FALSE(takes({.kind = CallKind::kReduce, .in = floats, .out = floats}));
  EXPECT_FALSE(takes({.kind = CallKind::kBarrier}));
  const TensorView small(floats.data(), 32, DType::kF32), larger(floats.data(), 33, DType::kF32);
  EXPECT_FALSE(takes({.kind = CallKind::kAllReduce, .in = small, .out = small}));  // a sixteenth of a slot
  EXPECT_TRUE(takes({.kind = CallKind::kAllReduce, .in = larger, .out = larger}));
  End();
  Start({{2, By::kIpc}, {2, By::kIpc}});
  EXPECT_TRUE(takes({.kind = CallKind::kAllReduce, .in = shorts, .out = shorts}));
}

TEST_F(Hierarchical, SegmentsGoOnlyWhereHostsHaveAsManyRanks) {
  std::vector<float> floats(1000);
  const std::vector<int64_t> counts = {250, 250, 250, 250};
  const TensorView segment(floats.data(), 250, DType::kF32);
  const Call scatter{.kind = CallKind::kReduceScatter, .in = floats, .out = segment, .counts = counts};
  const Call gather{.kind = CallKind::kAllGather, .in = segment, .out = floats, .counts = counts};
  Start({{2, By::kIpc}, {2, By::kIpc}});
  EXPECT_TRUE(backends_[0]->Takes(scatter) && backends_[0]->Takes(gather));
  End();
  Start({{3, By::kIpc}, {1, By::kAlone}});
  EXPECT_FALSE(backends_[0]->Takes(scatter) || backends_[0]->Takes(gather));
}

// In the network only what one rank of each host would send: each its share.
TEST_F(Hierarchical, EachRankSendsItsShareAlone) {
  Start({{2, By::kIpc}, {2, By::kIpc}});
  ExpectSums();
  std::vector<int64_t> before;
  for (int r = 0; r < 4; ++r) before.push_back(ranks_->network().bytes_sent(r));
  constexpr int64_t kCount = 100'000;
  EXPECT_THAT(AllReduce(kCount), Each(IsOk()));
  for (int r = 0; r < 4; ++r) {
    const auto sent = static_cast<double>(ranks_->network().bytes_sent(r) - before[static_cast<size_t>(r)]);
    constexpr double kShare = 4.0 * kCount / 2;
    EXPECT_NEAR(sent, kShare, 0.1 * kShare) << "by rank " << r;  // 2 (h-1)/h of half of all
  }
}

TEST_F(Hierarchical, MemoryIsUsedAgain) {
  Start({{2, By::kIpc}, {2, By::kIpc}});
  std::vector<std::vector<float>> all(4, std::vector<float>(4000)), parts(4, std::vector<float>(1000));
  const std::vector<int64_t> counts(4, 1000);
  const auto use = [&] {
    Operations operations;
    for (int r = 0; r < 4; ++r) {
      const auto index = static_cast<size_t>(r);
      const Call call{.kind = CallKind::kReduceScatter,
                      .in = all[index],
                      .out = parts[index],
                      .counts = counts,
                      .timeout = std::chrono::seconds(5)};
      operations.push_back(backends_[index]->Make(ranks_->OnGpu(r, call)));
    }
    EXPECT_THAT(Ended(operations), Each(IsOk()));
    ranks_->Settle();
  };
  use();
  const int64_t pinned = ranks_->gpu(0)->pinned();
  const size_t allocations = ranks_->gpu(0)->allocations();
  for (int i = 0; i < 5; ++i) use();
  EXPECT_EQ(ranks_->gpu(0)->pinned(), pinned);
  EXPECT_EQ(ranks_->gpu(0)->allocations(), allocations);
}

// Ranks beyond the rails have no share, and are given all by the others of their host: behind what their program has
// queued on the tensor.
TEST_F(Hierarchical, ABroadcastComesBehindWhatRanksWithoutAShareHaveQueued) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Start({{1, By::kAlone}, {3, By::kIpc}}, seed);
    ExpectSums();
    std::vector<std::vector<float>> values(4, std::vector<float>(kOneChunk, 1.0f));
    values[0].assign(kOneChunk, 7.0f);
    const std::vector<float> older(kOneChunk, 3.0f);
    Operations operations;
    for (int r = 0; r < 4; ++r) {
      auto& mine = values[static_cast<size_t>(r)];
      if (r >= 2) {
        ranks_->gpu(r)->Hold(ranks_->stream(r), true);
        ASSERT_THAT(ranks_->gpu(r)->Copy(mine.data(), older.data(), kOneChunk * 4, ranks_->stream(r)), IsOk());
      }
      const Call call{.kind = CallKind::kBroadcast, .in = mine, .out = mine, .timeout = std::chrono::seconds(5)};
      operations.push_back(backends_[static_cast<size_t>(r)]->Make(ranks_->OnGpu(r, call)));
    }
    EXPECT_THAT(Ended(operations), Each(IsOk()));
    ranks_->Settle();
    for (const int r : {2, 3}) ranks_->gpu(r)->Hold(ranks_->stream(r), false);
    ranks_->Settle();
    for (size_t r = 0; r < 4; ++r) EXPECT_EQ(values[r], std::vector<float>(kOneChunk, 7.0f)) << r << " " << seed;
    operations.clear();
    End();
  }
}

// Chunks overlap: with a network that stands still, several shares come to the host.
TEST_F(Hierarchical, ExchangesAreAheadOfTheNetwork) {
  Start({{2, By::kIpc}, {2, By::kIpc}});
  ExpectSums();
  for (int r = 0; r < 2; ++r) ranks_->network().Cut(r, r + 2);
  std::vector<std::vector<float>> values(4, std::vector<float>(kChunks, 1.0f));
  Operations operations;
  for (int r = 0; r < 4; ++r) {
    auto& mine = values[static_cast<size_t>(r)];
    operations.push_back(backends_[static_cast<size_t>(r)]->Make(ranks_->OnGpu(
        r, {.kind = CallKind::kAllReduce, .in = mine, .out = mine, .timeout = std::chrono::seconds(10)})));
  }
  Turn(operations, 200);
  ranks_->Settle();
  for (int r = 0; r < 2; ++r) {  // the host's sums are in this rank's shares of as many chunks as there are slots
    const auto summed = std::count(values[static_cast<size_t>(r)].begin(), values[static_cast<size_t>(r)].end(), 2.0f);
    EXPECT_EQ(summed, kSlots.slots * kSlots.slot_bytes / 4) << "of rank " << r;
  }
  for (int r = 0; r < 2; ++r) ranks_->network().Heal(r, r + 2);
  EXPECT_THAT(Ended(operations), Each(IsOk()));
  ranks_->Settle();
  for (const auto& mine : values) EXPECT_EQ(mine, std::vector<float>(kChunks, 4.0f));
}

}  // namespace
}  // namespace gyre
