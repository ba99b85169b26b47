// The NCCL backend over a fake NCCL: all calls, and every way in which they do not end well.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/gpu/nccl_fixture.h"
#include "gmock/gmock.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::IsOk;
using support::MatchesStatus;

using internal::Call;
using internal::CallKind;
using testing::HasSubstr;

TEST_F(Nccl, DoesWhatEveryCallSays) {
  for (const int size : {1, 2, 3, 4}) {
    Start(size, static_cast<uint64_t>(size));
    for (int i = 0; i < 150; ++i) {
      ASSERT_EQ(RunRandomCall(*host_, backends_, internal::nccl::Takes), "") << "call " << i << " of " << size;
    }
    EXPECT_EQ(nccl_->made, size);
    End();
    EXPECT_EQ(nccl_->finalized, size);
    EXPECT_EQ(nccl_->aborted, 0);
  }
}

// What comes overwrites what is sent.
TEST_F(Nccl, ExchangesInPlace) {
  Start(3);
  std::vector<std::vector<int32_t>> values;
  std::vector<int64_t> counts = {7, 7, 7};
  HostOfRanks::Operations operations;
  for (int r = 0; r < 3; ++r) {
    values.emplace_back(21);
    for (int i = 0; i < 21; ++i) values.back()[static_cast<size_t>(i)] = 100 * r + i;
  }
  for (int r = 0; r < 3; ++r) {
    auto& mine = values[static_cast<size_t>(r)];
    const Call call{.kind = CallKind::kAllToAll,
                    .in = mine,
                    .out = mine,
                    .counts = counts,
                    .receive_counts = counts,
                    .timeout = std::chrono::seconds(5)};
    operations.push_back(backends_[static_cast<size_t>(r)]->Make(host_->OnGpu(r, call)));
  }
  EXPECT_THAT(Ended(operations), testing::Each(IsOk()));
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(host_->gpu()->Synchronize(host_->stream(r)).ok());
    for (int i = 0; i < 21; ++i) {
      EXPECT_EQ(values[static_cast<size_t>(r)][static_cast<size_t>(i)], 100 * (i / 7) + 7 * r + i % 7);
    }
  }
}

// In place, for scratch memory.
internal::GpuCall Exchange(const HostOfRanks& host, int rank, std::vector<float>& values,
                           const std::vector<int64_t>& counts, std::chrono::milliseconds timeout) {
  return host.OnGpu(rank, {.kind = CallKind::kAllToAll,
                           .in = values,
                           .out = values,
                           .counts = counts,
                           .receive_counts = counts,
                           .timeout = timeout});
}

// Of calls that the GPU has yet to do memory is not freed, which would wait for it.
TEST_F(Nccl, ScratchMemoryGrowsBesideCallsThatStand) {
  Start(2);
  host_->gpu()->Stall(true);
  std::vector<std::vector<float>> values;
  for (const int64_t count : {10, 1000, 5000}) {
    const std::vector<int64_t> counts = {count, count};
    HostOfRanks::Operations operations;
    for (int r = 0; r < 2; ++r) {
      values.emplace_back(static_cast<size_t>(2 * count), static_cast<float>(r));
      operations.push_back(
          backends_[static_cast<size_t>(r)]->Make(Exchange(*host_, r, values.back(), counts, std::chrono::seconds(5))));
    }
    EXPECT_THAT(Ended(operations), testing::Each(IsOk()));
  }
  host_->gpu()->Stall(false);
  EXPECT_TRUE(host_->RunWatches());
  for (int r = 0; r < 2; ++r) ASSERT_TRUE(host_->gpu()->Synchronize(host_->stream(r)).ok());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t half = values[i].size() / 2;
    for (size_t k = 0; k < values[i].size(); ++k) ASSERT_EQ(values[i][k], k < half ? 0.0f : 1.0f);
  }
  End();
  host_->gpu()->Free(nullptr);
  EXPECT_EQ(host_->gpu()->allocations(), 0u);
}

TEST_F(Nccl, ItsEndDoesNotWaitForWhoDropsItNorFreeWhatStands) {
  Start(2);
  host_->gpu()->Stall(true);
  std::vector<std::vector<float>> values(2, std::vector<float>(20));
  HostOfRanks::Operations operations;
  const std::vector<int64_t> counts = {10, 10};
  for (size_t r = 0; r < 2; ++r) {
    operations.push_back(
        backends_[r]->Make(Exchange(*host_, static_cast<int>(r), values[r], counts, std::chrono::seconds(5))));
  }
  EXPECT_THAT(Ended(operations), testing::Each(IsOk()));
  operations.clear();
  const auto began = std::chrono::steady_clock::now();
  backends_.clear();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(2));  // as an end waits for NCCL
  for (int r = 0; r < 2; ++r) host_->group(r)->node().Close();
  EXPECT_TRUE(host_->RunWatches());  // by abort: what stands is never done
  EXPECT_EQ(nccl_->alive, 0);
  EXPECT_TRUE(nccl_->AbortsBecome(2));
  host_->gpu()->Stall(false);
  host_->gpu()->Free(nullptr);  // which `values` outlive
}

TEST_F(Nccl, WhatIsSentMustBeExpected) {
  Start(2);
  for (const bool connected : {false, true}) {
    std::vector<float> in(6), out(6);
    const std::vector<int64_t> counts = {2, 4};  // but rank 1 sends 2 to rank 0, which expects 4
    HostOfRanks::Operations operations;
    for (int r = 0; r < 2; ++r) {
      operations.push_back(
          backends_[static_cast<size_t>(r)]->Make(host_->OnGpu(r, {.kind = CallKind::kAllToAll,
                                                                   .in = in,
                                                                   .out = out,
                                                                   .counts = counts,
                                                                   .receive_counts = counts,
                                                                   .timeout = std::chrono::seconds(5)})));
    }
    for (const absl::Status& status : Ended(operations)) {
      EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kInvalidArgument,
                                        "rank 0 sends 4 elements to rank 1, which expects 2"));
    }
    EXPECT_EQ(nccl_->made, connected ? 2 : 0);
    EXPECT_THAT(AllReduce(), testing::Each(IsOk()));  // nothing was changed
  }
}

TEST_F(Nccl, TimeInTheQueueCounts) {
  Start(2);
  Sum sum(*host_);
  auto operations = sum.Make(backends_, std::chrono::seconds(10));
  operations[1] = nullptr;
  operations[0]->StartClock(std::chrono::steady_clock::now() - std::chrono::milliseconds(9900));
  const auto began = std::chrono::steady_clock::now();
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 did not come"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST_F(Nccl, LeavesToOthersWhatItCannotDo) {
  std::vector<int16_t> shorts(4);
  std::vector<float> floats(4);
  EXPECT_FALSE(internal::nccl::Takes({.kind = CallKind::kBarrier}));
  EXPECT_FALSE(internal::nccl::Takes({.kind = CallKind::kMessage, .in = floats, .send = true}));
  EXPECT_FALSE(internal::nccl::Takes({.kind = CallKind::kAllReduce, .in = shorts, .out = shorts}));
  EXPECT_TRUE(internal::nccl::Takes({.kind = CallKind::kBroadcast, .in = shorts, .out = shorts}));
  EXPECT_FALSE(
      internal::nccl::Takes({.kind = CallKind::kAllReduce, .in = floats, .out = floats, .op = ReduceOp::kAdasum}));
}

TEST_F(Nccl, CallsThatDifferAreRefusedAndChangeNothing) {
  Start(3);
  EXPECT_THAT(AllReduce(), testing::Each(IsOk()));
  Sum sum(*host_, 1000), other(*host_, 999);
  HostOfRanks::Operations operations;
  for (int r = 0; r < 3; ++r) {
    operations.push_back(backends_[static_cast<size_t>(r)]->Make(r == 1 ? other.Of(r) : sum.Of(r)));
  }
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kInvalidArgument, "999 elements"));
  }
  Sum again(*host_);
  EXPECT_THAT(Ended(again.Make(backends_)), testing::Each(IsOk()));
  again.ExpectRight();
}

TEST_F(Nccl, OneThatNeverConnectsEndsAtTheDeadline) {
  Start(3);
  nccl_->never_connects = true;
  for (const absl::Status& status : AllReduce(kShortTimeout)) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kDeadlineExceeded, "connecting the ranks"));
  }
  EXPECT_TRUE(nccl_->AbortsBecome(3));
  nccl_->never_connects = false;
  ExpectUnusable();
}

TEST_F(Nccl, OneThatNeverLaunchesEndsAtTheDeadline) {
  Start(2);
  EXPECT_THAT(AllReduce(), testing::Each(IsOk()));
  nccl_->never_launches = true;
  for (const absl::Status& status : AllReduce(kShortTimeout)) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kDeadlineExceeded, "launching"));
  }
  EXPECT_TRUE(nccl_->AbortsBecome(2));
  ExpectUnusable();
}

TEST_F(Nccl, ARankThatDoesNotComeIsNamed) {
  Start(3);
  Sum sum(*host_);
  auto operations = sum.Make(backends_, kShortTimeout);
  operations[1] = nullptr;
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 did not come"));
  }
}

TEST_F(Nccl, ItsErrorsGiveTheCommunicatorUp) {
  Start(3);
  EXPECT_THAT(AllReduce(), testing::Each(IsOk()));
  nccl_->never_launches = true;  // so that the others do not end before they learn of it
  nccl_->Break(1, absl::InternalError("an invalid memory access"));
  for (const absl::Status& status : AllReduce()) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kInternal, "an invalid memory access"));
  }
  EXPECT_TRUE(nccl_->AbortsBecome(3));
  ExpectUnusable();
}

TEST_F(Nccl, WithoutAnIdNobodyConnects) {
  Start(2);
  nccl_->refuses_ids = true;
  for (const absl::Status& status : AllReduce()) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kUnavailable, "no network to be found"));
  }
  EXPECT_EQ(nccl_->made, 0);
}

// Its own words, not that time is up.
TEST_F(Nccl, ItsErrorsAreNamedAtTheDeadlineToo) {
  Start(2);
  EXPECT_THAT(AllReduce(), testing::Each(IsOk()));
  nccl_->never_launches = true;
  for (int r = 0; r < 2; ++r) nccl_->Break(r, absl::InternalError("an invalid memory access"));
  Sum sum(*host_);
  const auto operations = sum.Make(backends_);
  for (int i = 0; i < 100'000 && nccl_->aborted < 2; ++i) operations[static_cast<size_t>(i) % 2]->Poll();
  for (const auto& operation : operations) {
    operation->StartClock(std::chrono::steady_clock::now() - std::chrono::seconds(5));
  }
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kInternal, "an invalid memory access"));
  }
}

// After an error the GPU may be at work on the call's tensors for a while: what their stream does next comes after.
TEST_F(Nccl, WhatWasQueuedComesBeforeWhatTheCallerDoesAfterAnError) {
  Start(2);
  EXPECT_THAT(AllReduce(), testing::Each(IsOk()));
  host_->gpu()->Free(nullptr);
  nccl_->never_launches = true;
  host_->gpu()->Stall(true);
  std::vector<std::vector<float>> values(2, std::vector<float>(100, 1.0f));
  const std::vector<float> restored(100, 7.0f);
  HostOfRanks::Operations operations;
  for (int r = 0; r < 2; ++r) {
    auto& mine = values[static_cast<size_t>(r)];
    const Call call{.kind = CallKind::kAllReduce, .in = mine, .out = mine, .timeout = kShortTimeout};
    operations.push_back(backends_[static_cast<size_t>(r)]->Make(host_->OnGpu(r, call)));
  }
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kDeadlineExceeded, "launching"));
  }
  for (int r = 0; r < 2; ++r) {
    ASSERT_THAT(host_->gpu()->Copy(values[static_cast<size_t>(r)].data(), restored.data(), 400, host_->stream(r)),
                IsOk());
  }
  host_->gpu()->Stall(false);
  host_->gpu()->Free(nullptr);
  for (const auto& mine : values) EXPECT_EQ(mine, restored);
}

// NCCL says that something is wrong before Gyre knows what.
TEST_F(Nccl, ALossIsNamedWhereNcclOnlyNoticesIt) {
  Start(3);
  EXPECT_THAT(AllReduce(), testing::Each(IsOk()));
  for (int r = 0; r < 2; ++r) nccl_->Break(r, absl::UnavailableError("remote error"));
  Sum sum(*host_);
  auto operations = sum.Make(backends_);
  const auto began = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - began < std::chrono::milliseconds(20)) {
    for (const auto& operation : operations) operation->Poll();
  }
  for (int r = 0; r < 2; ++r) host_->group(r)->node().LearnLoss(2, "rank 2 was lost: its process ended");
  operations[2] = nullptr;
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kAborted, "rank 2 was lost"));
  }
}

// --- What has been queued, but is not done ---

TEST_F(Nccl, WhatTheGpuNeverDoesIsAbortedAtTheDeadline) {
  Start(2);
  host_->gpu()->Stall(true);
  EXPECT_THAT(AllReduce(kShortTimeout), testing::Each(IsOk()));  // it has been queued
  EXPECT_EQ(nccl_->aborted, 0);
  EXPECT_TRUE(host_->RunWatches());
  EXPECT_TRUE(nccl_->AbortsBecome(2));
  for (const absl::Status& status : AllReduce()) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kFailedPrecondition, "had not done it at its deadline"));
  }
}

TEST_F(Nccl, WhatIsUnderWayIsAbortedWhenARankIsLost) {
  Start(3);
  host_->gpu()->Stall(true);
  EXPECT_THAT(AllReduce(), testing::Each(IsOk()));
  for (int r = 0; r < 3; ++r) host_->group(r)->node().LearnLoss(2, "rank 2 was lost: its process ended");
  EXPECT_TRUE(host_->RunWatches());
  EXPECT_TRUE(nccl_->AbortsBecome(3));
  for (const absl::Status& status : AllReduce()) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kFailedPrecondition, "rank 2 was lost"));
  }
}

// NCCL tells its error to the watch over the call before, and the next call has it from there.
TEST_F(Nccl, AnErrorFoundByAnEarlierCallsWatchIsTheNextCallsToo) {
  Start(2);
  host_->gpu()->Stall(true);
  EXPECT_THAT(AllReduce(), testing::Each(IsOk()));
  for (int r = 0; r < 2; ++r) nccl_->Break(r, absl::InternalError("an invalid memory access"));
  for (int i = 0; i < 1000 && nccl_->aborted < 2; ++i) (void)host_->RunWatches(std::chrono::milliseconds(1));
  for (const absl::Status& status : AllReduce()) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("an invalid memory access"));
  }
}

TEST_F(Nccl, ItsErrorsAreFoundWhileTheGpuIsAtWork) {
  Start(2);
  host_->gpu()->Stall(true);
  EXPECT_THAT(AllReduce(), testing::Each(IsOk()));
  nccl_->Break(0, absl::InternalError("a network that went away"));
  EXPECT_TRUE(host_->RunWatches());
  EXPECT_TRUE(nccl_->AbortsBecome(2));
  for (const absl::Status& status : AllReduce()) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kFailedPrecondition, "a network that went away"));
  }
}

TEST_F(Nccl, OneWatchDoesForAllThatIsUnderWay) {
  Start(2);
  host_->gpu()->Stall(true);
  for (int i = 0; i < 20; ++i) EXPECT_THAT(AllReduce(), testing::Each(IsOk()));
  EXPECT_EQ(host_->watches(), 2u);
  host_->gpu()->Stall(false);
  EXPECT_TRUE(host_->RunWatches());
  EXPECT_THAT(AllReduce(), testing::Each(IsOk()));
  EXPECT_TRUE(host_->RunWatches());
  EXPECT_EQ(nccl_->aborted, 0);
}

TEST_F(Nccl, AShutDownEndsCalls) {
  Start(2);
  nccl_->never_connects = true;
  Sum sum(*host_);
  const auto operations = sum.Make(backends_);
  for (int i = 0; i < 1000; ++i) operations[static_cast<size_t>(i) % 2]->Poll();
  for (int r = 0; r < 2; ++r) host_->group(r)->node().Close();
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kFailedPrecondition, "shut down"));
  }
}

// --- Several communicators ---

TEST_F(Nccl, PartsOfACommunicatorHaveTheirOwn) {
  Start(4);
  Backends parts(4);
  for (const std::vector<int>& ranks : {std::vector<int>{2, 0}, std::vector<int>{1, 3}}) {
    for (const auto& [rank, group] : host_->Part(ranks)) {
      const auto index = static_cast<size_t>(rank);
      parts[index] = Make(group, memories_[index]);
    }
  }
  std::vector<std::vector<float>> values;
  for (int r = 0; r < 4; ++r) values.push_back({static_cast<float>(r)});
  HostOfRanks::Operations operations;
  for (int r = 0; r < 4; ++r) {
    auto& mine = values[static_cast<size_t>(r)];
    const Call call{.kind = CallKind::kAllReduce, .in = mine, .out = mine, .timeout = std::chrono::seconds(5)};
    operations.push_back(parts[static_cast<size_t>(r)]->Make(host_->OnGpu(r, call)));
  }
  EXPECT_THAT(Ended(operations), testing::Each(IsOk()));
  for (int r = 0; r < 4; ++r) {
    ASSERT_TRUE(host_->gpu()->Synchronize(host_->stream(r)).ok());
    EXPECT_EQ(values[static_cast<size_t>(r)][0], r % 2 == 0 ? 2.0f : 4.0f);
  }
  EXPECT_THAT(AllReduce(), testing::Each(IsOk()));
  EXPECT_EQ(nccl_->made, 8);
  EXPECT_TRUE(host_->RunWatches());
}

}  // namespace
}  // namespace gyre
