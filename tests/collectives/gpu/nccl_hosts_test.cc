// The NCCL backend over several hosts, of one rank each: without a host's memory in which calls meet.
#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/gpu/fake_nccl.h"
#include "collectives/hierarchical/sim_world.h"
#include "collectives/nccl/factory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::IsOk;
using support::MatchesStatus;

using internal::Call;
using internal::CallKind;
using testing::Each;

constexpr int kHosts = 3;
constexpr auto kStep = std::chrono::milliseconds(1);

class NcclOverHosts : public testing::Test {
 protected:
  NcclOverHosts() {
    world_.network().Advance(world_.network().now() + kStep);  // off the beginning of time
    for (int r = 0; r < kHosts; ++r) {
      const auto& team = world_.team(r);
      streams_.push_back(*gpu_->CreateStream());
      backends_.push_back(internal::nccl::MakeBackend(
          nccl_, std::shared_ptr<internal::Group>(team, &team->local()), team, gpu_,
          internal::nccl::MakeMemory(nccl_, gpu_, 64),
          [this](const auto& /*owner*/, auto& /*lane*/, const auto& watch) { watches_.push_back(watch); }));
      values_.emplace_back(12);
      std::iota(values_.back().begin(), values_.back().end(), static_cast<float>(100 * r));
    }
  }

  ~NcclOverHosts() override {
    gpu_->Stall(false);
    EXPECT_TRUE(RunWatches());
    backends_.clear();
    EXPECT_TRUE(RunWatches());
    EXPECT_EQ(nccl_.alive, 0);
    gpu_->Free(nullptr);
    for (const device::Gpu::Stream stream : streams_) gpu_->DestroyStream(stream);
  }

  std::vector<absl::Status> Run(CallKind kind, std::chrono::milliseconds timeout = std::chrono::seconds(5)) {
    return Run({kind, kind, kind}, timeout);
  }

  // Every rank's call on its values, in place, and its end.
  std::vector<absl::Status> Run(std::vector<CallKind> kinds, std::chrono::milliseconds timeout) {
    static const std::vector<int64_t> counts(kHosts, 4);
    std::vector<std::shared_ptr<internal::Pollable>> calls;
    for (int r = 0; r < kHosts; ++r) {
      const auto index = static_cast<size_t>(r);
      Call call{.kind = kinds[index],
                .in = values_[index],
                .out = values_[index],
                .counts = counts,
                .receive_counts = counts,
                .timeout = timeout};
      call.in.device = call.out.device = {.gpu = 0, .stream = streams_[index]};
      calls.push_back(backends_[index]->Make({.call = call, .gpu = gpu_}));
      calls.back()->StartClock(world_.network().now());
    }
    std::vector<bool> ended(kHosts);
    for (int i = 0; i < 20'000 && std::ranges::count(ended, false) > 0; ++i) {
      for (size_t r = 0; r < kHosts; ++r) ended[r] = ended[r] || Step(*calls[r]);
      world_.network().Advance(world_.network().now() + kStep);
    }
    EXPECT_EQ(std::ranges::count(ended, false), 0);
    std::vector<absl::Status> statuses;
    for (const auto& call : calls) statuses.push_back(call->status());
    return statuses;
  }

  bool Step(internal::Pollable& pollable) {
    return pollable.Poll() == shm::Progress::kDone || pollable.Check(world_.network().now());
  }

  bool RunWatches() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!watches_.empty() && std::chrono::steady_clock::now() < limit) {
      std::erase_if(watches_, [this](const auto& watch) { return Step(*watch); });
      world_.network().Advance(world_.network().now() + kStep);
    }
    return watches_.empty();
  }

  std::shared_ptr<device::FakeGpu> gpu_ = std::make_shared<device::FakeGpu>();
  FakeNccl nccl_{*gpu_};
  SimWorld world_{{.ranks = kHosts}};
  std::vector<device::Gpu::Stream> streams_;
  std::vector<std::shared_ptr<internal::Pollable>> watches_;
  std::vector<std::shared_ptr<internal::GpuBackend>> backends_;
  std::vector<std::vector<float>> values_;
};

TEST_F(NcclOverHosts, OnlyTheFirstCallMeets) {
  EXPECT_THAT(Run(CallKind::kAllToAll), Each(IsOk()));
  EXPECT_THAT(Run(CallKind::kAllReduce), Each(IsOk()));
  EXPECT_EQ(nccl_.made, kHosts);
  for (size_t r = 0; r < kHosts; ++r) {
    ASSERT_THAT(gpu_->Synchronize(streams_[r]), IsOk());
    for (int i = 0; i < 12; ++i) {  // of rank k: 100 * (i / 4) + 4 * k + i % 4 after the first
      EXPECT_EQ(values_[r][static_cast<size_t>(i)], static_cast<float>(300 * (i / 4) + 12 + 3 * (i % 4)));
    }
  }
}

TEST_F(NcclOverHosts, AFirstCallThatDiffersIsFound) {
  const auto statuses =
      Run({CallKind::kAllReduce, CallKind::kAllToAll, CallKind::kAllReduce}, std::chrono::milliseconds(500));
  for (const absl::Status& status : statuses) EXPECT_FALSE(status.ok());
  EXPECT_EQ(nccl_.launches, 0);
}

TEST_F(NcclOverHosts, ALossEndsWhatIsUnderWay) {
  EXPECT_THAT(Run(CallKind::kAllReduce), Each(IsOk()));
  gpu_->Stall(true);
  EXPECT_THAT(Run(CallKind::kAllReduce), Each(IsOk()));
  world_.team(0)->local().node().LearnGivenUpBy(2, "rank 2 was given up");
  EXPECT_TRUE(RunWatches());
  EXPECT_TRUE(nccl_.AbortsBecome(kHosts));  // the others by rank 0's word
  for (const absl::Status& status : Run(CallKind::kAllReduce)) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kFailedPrecondition, "rank 2 was given up"));
  }
}

TEST_F(NcclOverHosts, OneThatNeverLaunchesEndsAtTheDeadline) {
  EXPECT_THAT(Run(CallKind::kAllReduce), Each(IsOk()));
  EXPECT_TRUE(RunWatches());
  nccl_.never_launches = true;
  for (const absl::Status& status : Run(CallKind::kAllReduce, std::chrono::milliseconds(60))) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kDeadlineExceeded, "launching"));
  }
  EXPECT_TRUE(nccl_.AbortsBecome(kHosts));
}

}  // namespace
}  // namespace gyre
