// The IPC backend over one fake GPU: all calls, and what goes wrong.
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/gpu/calls.h"
#include "collectives/gpu/host_of_ranks.h"
#include "collectives/ipc/factory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::IsOk;
using support::MatchesStatus;

using internal::Call;
using internal::CallKind;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;

class Ipc : public testing::Test {
 protected:
  // Halves of areas are small, so that calls have many chunks.
  void Start(int size, uint64_t seed = 1, int64_t half = 4096) {
    host_ = std::make_unique<HostOfRanks>(size, seed);
    for (int r = 0; r < size; ++r) {
      backends_.push_back(internal::ipc::MakeBackend(host_->group(r), host_->gpu(), half));
    }
  }

  // Nothing is left on the GPU. Each rank's on a thread of its own, for each waits until the others have closed its
  // area.
  void End() {
    if (host_ == nullptr) return;
    support::RunThreads(static_cast<int>(backends_.size()),
                        [this](int rank) { backends_[static_cast<size_t>(rank)].reset(); });
    backends_.clear();
    EXPECT_EQ(host_->gpu()->allocations(), 0u);
    EXPECT_EQ(host_->gpu()->sharing().open(), 0);
    host_.reset();
  }
  void TearDown() override { End(); }

  std::vector<absl::Status> Ended(const HostOfRanks::Operations& operations) {
    EXPECT_TRUE(host_->Run(operations));
    std::vector<absl::Status> statuses;
    for (const auto& operation : operations) {
      if (operation != nullptr) statuses.push_back(operation->status());
    }
    return statuses;
  }

  void ExpectSums() {
    Sum sum(*host_);
    EXPECT_THAT(Ended(sum.Make(backends_)), Each(IsOk()));
    sum.ExpectRight();
  }

  std::unique_ptr<HostOfRanks> host_;
  Backends backends_;
};

TEST_F(Ipc, DoesWhatEveryCallSays) {
  for (const int size : {1, 2, 3, 5}) {
    Start(size, static_cast<uint64_t>(size), 2048 * size);
    for (int i = 0; i < 150; ++i) {
      ASSERT_EQ(RunRandomCall(*host_, backends_, internal::ipc::Takes), "") << "call " << i << " of " << size;
    }
    End();
  }
}

// Nothing waits for the GPU: with it at a stand, all calls return, and what they queued is right once it goes on.
TEST_F(Ipc, HostsAreAheadOfTheGpu) {
  Start(3);
  ExpectSums();
  host_->gpu()->Stall(true);
  std::vector<std::unique_ptr<Sum>> sums;
  for (int i = 0; i < 8; ++i) {
    sums.push_back(std::make_unique<Sum>(*host_, 700 * i));
    EXPECT_THAT(Ended(sums.back()->Make(backends_)), Each(IsOk()));
  }
  host_->gpu()->Stall(false);
  for (const auto& sum : sums) sum->ExpectRight();
}

TEST_F(Ipc, WhereMemoryCannotBeSharedAllRanksAreTold) {
  Start(3);
  host_->gpu()->sharing().Refuse(absl::UnavailableError("the GPUs are no peers"));
  Sum sum(*host_);
  for (const absl::Status& status : Ended(sum.Make(backends_))) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kUnavailable,
                                      "rank 0 cannot share its GPU's memory: the GPUs are no peers"));
  }
  host_->gpu()->sharing().Refuse(absl::OkStatus());
  ExpectSums();  // nothing was changed
}

TEST_F(Ipc, CallsThatDifferAreRefusedAndChangeNothing) {
  Start(2);
  ExpectSums();
  Sum sum(*host_, 1000), other(*host_, 999);
  for (const absl::Status& status : Ended({backends_[0]->Make(sum.Of(0)), backends_[1]->Make(other.Of(1))})) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kInvalidArgument, "999 elements"));
  }
  ExpectSums();
}

TEST_F(Ipc, WhatIsSentMustBeExpected) {
  Start(2);
  std::vector<float> in(6), out(6);
  const std::vector<int64_t> sends = {2, 4}, expects = {2, 4};  // but rank 1 sends 2 to rank 0, which expects 4
  HostOfRanks::Operations operations;
  for (int r = 0; r < 2; ++r) {
    operations.push_back(
        backends_[static_cast<size_t>(r)]->Make(host_->OnGpu(r, {.kind = CallKind::kAllToAll,
                                                                 .in = in,
                                                                 .out = out,
                                                                 .counts = sends,
                                                                 .receive_counts = expects,
                                                                 .timeout = std::chrono::seconds(5)})));
  }
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kInvalidArgument,
                                      "rank 0 sends 4 elements to rank 1, which expects 2"));
  }
  ExpectSums();
}

TEST_F(Ipc, ARankWhoseGpuFailsIsNamed) {
  Start(2);
  ExpectSums();
  Sum sum(*host_, 5000);
  auto operations = sum.Make(backends_);
  operations[0]->Poll();
  host_->gpu()->Fail(absl::InternalError("an invalid memory access"));
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(std::string(status.message()),
                AnyOf(HasSubstr("an invalid memory access"), HasSubstr("'s GPU failed")));
  }
  host_->gpu()->Fail(absl::OkStatus());
  Sum again(*host_);
  for (const absl::Status& status : Ended(again.Make(backends_))) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kFailedPrecondition, "unusable"));
  }
}

TEST_F(Ipc, ARankThatDoesNotComeIsNamed) {
  Start(3);
  Sum sum(*host_);
  auto operations = sum.Make(backends_, kShortTimeout);
  operations[1] = nullptr;
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 did not come"));
  }
}

// After an error what was queued may still wait for others: what the call's stream does next comes after it.
TEST_F(Ipc, WhatWasQueuedComesBeforeWhatTheCallerDoesAfterAnError) {
  Start(2);
  ExpectSums();
  host_->gpu()->Stall(true);
  std::vector<std::vector<float>> values(2, std::vector<float>(5000, 1.0f));
  const std::vector<float> restored(5000, 7.0f);
  HostOfRanks::Operations operations;
  for (int r = 0; r < 2; ++r) {
    auto& mine = values[static_cast<size_t>(r)];
    operations.push_back(backends_[static_cast<size_t>(r)]->Make(
        host_->OnGpu(r, {.kind = CallKind::kAllReduce, .in = mine, .out = mine, .timeout = kShortTimeout})));
  }
  for (int i = 0; i < 3; ++i) {  // results of the first chunk are taken
    for (const auto& operation : operations) operation->Poll();
  }
  operations[1] = nullptr;
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 did not come"));
  }
  ASSERT_THAT(host_->gpu()->Copy(values[0].data(), restored.data(), 5000 * 4, host_->stream(0)), IsOk());
  host_->gpu()->Stall(false);
  host_->gpu()->Free(nullptr);
  EXPECT_EQ(values[0], restored);
}

// The others may have work on a rank's area queued when it ends.
TEST_F(Ipc, AnAreaIsFreedOnceAllHaveClosedIt) {
  Start(3);
  ExpectSums();
  const size_t areas = host_->gpu()->allocations();
  support::RunThreads(2, [this](int rank) {
    if (rank == 0) return backends_[0].reset();
    while (host_->gpu()->sharing().open() == 18) std::this_thread::yield();  // until rank 0 has closed the others'
    EXPECT_EQ(host_->gpu()->allocations(), 3u);
    support::RunThreads(2, [this](int other) { backends_[static_cast<size_t>(1 + other)].reset(); });
  });
  EXPECT_EQ(areas, 3u);
}

TEST_F(Ipc, ALostRankEndsTheCallsOfOthers) {
  Start(3);
  ExpectSums();
  Sum sum(*host_, 5000);
  auto operations = sum.Make(backends_);
  for (int i = 0; i < 3; ++i) operations[static_cast<size_t>(i)]->Poll();
  operations[2] = nullptr;
  for (int r = 0; r < 2; ++r) host_->group(r)->node().LearnLoss(2, "rank 2 was lost: its process ended");
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kAborted, "rank 2 was lost"));
  }
}

}  // namespace
}  // namespace gyre
