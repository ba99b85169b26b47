// Memory that NCCL's communicators register: lazily, by all ranks or by none, and let go before it goes. The fake NCCL
// says what it does not take.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/gpu/nccl_memory_fixture.h"
#include "collectives/nccl/connection.h"
#include "gmock/gmock.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using internal::Call;
using internal::CallKind;
using internal::nccl::Connection;
using internal::nccl::Has;
using internal::nccl::Transfer;
using support::IsOk;
using support::MatchesStatus;
using testing::Each;

TEST_F(NcclMemory, IsRegisteredOnceWhereAllRanksUseItAlike) {
  Start(3);
  const std::vector<float*> tensors = {Piece(0), Piece(1), Piece(2)};
  EXPECT_EQ(nccl_->registrations, 0);
  for (int i = 0; i < 5; ++i) {
    ASSERT_THAT(Sum(tensors), Each(IsOk()));
    ExpectSum(tensors);
  }
  EXPECT_EQ(nccl_->registrations, 3);
  EXPECT_EQ(nccl_->registered, 3);
  End();
  EXPECT_EQ(nccl_->registered, 0);
  EXPECT_EQ(nccl_->finalized, 3);
}

TEST_F(NcclMemory, IsNotWhereRanksDiffer) {
  Start(2);
  const std::vector<float*> mixed = {Piece(0), Plain(1)};
  const std::vector<float*> elsewhere = {Piece(0, 2 * kCount), Piece(1, 2 * kCount) + 8};
  const std::vector<float*> of_other_sizes = {Piece(0, 2 * kCount), Piece(1, 3 * kCount)};
  for (const auto& tensors : {mixed, elsewhere, of_other_sizes}) {
    ASSERT_THAT(Sum(tensors), Each(IsOk()));
    ExpectSum(tensors);
  }
  EXPECT_EQ(nccl_->registrations, 0);
}

TEST_F(NcclMemory, IsForgottenBeforeItGoes) {
  Start(2);
  for (int i = 0; i < 3; ++i) {
    const std::vector<float*> tensors = {Piece(0), Piece(1)};
    ASSERT_THAT(Sum(tensors), Each(IsOk()));  // with work under way on them
    for (int r = 0; r < 2; ++r) Free(r, tensors[static_cast<size_t>(r)]);
    EXPECT_EQ(nccl_->registered, 0);
    EXPECT_EQ(nccl_->pieces(), 0u);
  }
  EXPECT_EQ(nccl_->registrations, 6);
  EXPECT_THAT(AllReduce(), Each(IsOk()));
}

TEST_F(NcclMemory, IsForgottenBySeveralCommunicators) {
  Start(2);
  Backends others(2);
  for (const auto& [rank, group] : host_->Part({1, 0})) {
    others[static_cast<size_t>(rank)] = Make(group, memories_[static_cast<size_t>(rank)]);
  }
  const std::vector<float*> tensors = {Piece(0), Piece(1)};
  for (int i = 0; i < 2; ++i) {
    ASSERT_THAT(Sum(tensors), Each(IsOk()));
    ExpectSum(tensors);
    EXPECT_TRUE(host_->RunWatches());
    std::swap(backends_, others);
  }
  EXPECT_EQ(nccl_->registered, 4);
  for (int r = 0; r < 2; ++r) Free(r, tensors[static_cast<size_t>(r)]);
  EXPECT_EQ(nccl_->registered, 0);
}

TEST_F(NcclMemory, MayGoAfterItsCommunicators) {
  Start(2);
  const std::vector<float*> tensors = {Piece(0), Piece(1)};
  ASSERT_THAT(Sum(tensors), Each(IsOk()));
  nccl_->never_deregisters = true;  // for which other ranks are asked
  End();
  EXPECT_EQ(nccl_->registered, 0);
  EXPECT_EQ(nccl_->finalized, 2);
}

// To let go of memory NCCL asks other ranks, of which one may be stopped.
TEST_F(NcclMemory, StaysWhereAnotherRankDoesNotAnswer) {
  Start(2);
  const std::vector<float*> tensors = {Piece(0), Piece(1)};
  ASSERT_THAT(Sum(tensors), Each(IsOk()));
  nccl_->never_deregisters = true;
  Free(0, tensors[0]);
  EXPECT_EQ(nccl_->pieces(), 2u);
  for (const absl::Status& status : AllReduce(std::chrono::milliseconds(60))) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kDeadlineExceeded, "timed out"));
  }
  EXPECT_TRUE(nccl_->AbortsBecome(2));
  End();
  host_->gpu()->Free(nullptr);
  nccl_->Free(0, tensors[0]);  // as with the process
}

// Between a call's look whether the communicator is free and its launch.
TEST_F(NcclMemory, WhatIsLaunchedAmidForgettingComesAfterIt) {
  Start(1);
  Connection connection(*nccl_, host_->gpu(), 0, 1);
  ASSERT_THAT(connection.Start(*nccl_->MakeId()), IsOk());
  ASSERT_TRUE(connection.Poll().value_or(false));
  float *const first = Piece(0), *const second = Piece(0);
  std::fill_n(second, kCount, 8.0f);
  ASSERT_THAT(connection.Register(first, kCount * 4), IsOk());
  nccl_->never_deregisters = true;
  bool forgotten = false;
  std::thread program(
      [&] { forgotten = connection.Forget(first, std::chrono::steady_clock::now() + std::chrono::seconds(20)); });
  while (connection.HasRegistered(first)) std::this_thread::yield();
  const Transfer transfer{.in = second,
                          .out = second,
                          .count = kCount,
                          .dtype = DType::kF32,
                          .combination = {.op = ReduceOp::kSum, .scale = 0.5}};
  EXPECT_THAT(connection.Register(second, kCount * 4), IsOk());
  EXPECT_THAT(connection.Launch({&transfer, 1}), IsOk());
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(connection.Poll().value_or(true));
  EXPECT_EQ(nccl_->launches, 0);
  nccl_->never_deregisters = false;
  program.join();
  EXPECT_TRUE(forgotten);
  while (!connection.Poll().value_or(true)) std::this_thread::yield();
  EXPECT_TRUE(connection.Poll().value_or(false));
  EXPECT_TRUE(connection.HasRegistered(second));
  ASSERT_THAT(host_->gpu()->Synchronize(connection.stream()), IsOk());
  EXPECT_THAT(std::vector<float>(second, second + kCount), Each(4.0f));
  connection.End();
}

TEST_F(NcclMemory, GoesWithoutAWordAfterAnAbort) {
  Start(2);
  const std::vector<float*> tensors = {Piece(0), Piece(1)};
  ASSERT_THAT(Sum(tensors), Each(IsOk()));
  nccl_->never_launches = true;
  for (const absl::Status& status : Sum(tensors, std::chrono::milliseconds(500))) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kDeadlineExceeded, "launching"));
  }
  EXPECT_TRUE(nccl_->AbortsBecome(2));
  for (int r = 0; r < 2; ++r) Free(r, tensors[static_cast<size_t>(r)]);
  EXPECT_EQ(nccl_->pieces(), 0u);
}

// The program gives other memory back while NCCL does not come to an end with a launch.
TEST_F(NcclMemory, StaysWhereItCannotBeForgotten) {
  Start(2);
  const std::vector<float*> tensors = {Piece(0), Piece(1)}, others = {Piece(0), Piece(1)};
  ASSERT_THAT(Sum(tensors), Each(IsOk()));
  ASSERT_THAT(Sum(others), Each(IsOk()));
  EXPECT_TRUE(host_->RunWatches());
  nccl_->never_launches = true;
  HostOfRanks::Operations operations;
  for (int r = 0; r < 2; ++r) {
    const TensorView view(tensors[static_cast<size_t>(r)], kCount, DType::kF32);
    const Call call{.kind = CallKind::kAllReduce, .in = view, .out = view, .timeout = std::chrono::seconds(30)};
    operations.push_back(backends_[static_cast<size_t>(r)]->Make(host_->OnGpu(r, call)));
    operations.back()->StartClock(std::chrono::steady_clock::now());
  }
  for (int i = 0; i < 1000; ++i) {
    for (const auto& operation : operations) ASSERT_NE(operation->Poll(), shm::Progress::kDone);
  }
  Free(0, others[0]);
  EXPECT_EQ(nccl_->pieces(), 4u);  // it is the process's
  nccl_->never_launches = false;
  EXPECT_THAT(Ended(operations), Each(IsOk()));
  operations.clear();  // they have the communicators
  End();
  host_->gpu()->Free(nullptr);
  nccl_->Free(0, others[0]);  // as with the process
}

TEST_F(NcclMemory, SmallPiecesAndWhatNcclHasNotComeFromTheGpu) {
  Start(2);
  const size_t before = host_->gpu()->allocations();
  float* const small = Piece(0, 4);
  EXPECT_FALSE(Has(*memories_[0], small));
  nccl_->allocations_left = 0;
  const std::vector<float*> tensors = {Piece(0), Piece(1)};
  EXPECT_FALSE(Has(*memories_[0], tensors[0]));
  EXPECT_EQ(nccl_->pieces(), 0u);
  EXPECT_EQ(host_->gpu()->allocations(), before + 3);
  ASSERT_THAT(Sum(tensors), Each(IsOk()));
  ExpectSum(tensors);
  EXPECT_EQ(nccl_->registrations, 0);
}

TEST_F(NcclMemory, HasItsBytesAndNoOthers) {
  Start(1);
  const auto* const piece = reinterpret_cast<const std::byte*>(Piece(0));
  EXPECT_TRUE(Has(*memories_[0], piece));
  EXPECT_TRUE(Has(*memories_[0], piece + 4 * kCount - 1));
  EXPECT_FALSE(Has(*memories_[0], piece + 4 * kCount));
  EXPECT_FALSE(Has(*memories_[0], piece - 1));
  EXPECT_FALSE(Has(*memories_[0], nullptr));
}

}  // namespace
}  // namespace gyre
