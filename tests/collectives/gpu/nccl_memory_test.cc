// Memory that NCCL's communicators register: lazily, by all ranks or by none, and let go before it goes. The fake NCCL
// says what it does not take.
#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/gpu/nccl_fixture.h"
#include "gmock/gmock.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using internal::Call;
using internal::CallKind;
using internal::nccl::AllocatorOf;
using internal::nccl::Has;
using support::IsOk;
using support::MatchesStatus;
using testing::Each;

constexpr int64_t kCount = 300;

class NcclMemory : public Nccl {
 protected:
  void TearDown() override {
    End();
    for (auto& plain : plain_) plain.clear();
    for (size_t r = 0; r < pieces_.size(); ++r) {
      for (void* const piece : pieces_[r]) AllocatorOf(memories_[r])->Free(piece);
    }
    EXPECT_TRUE(nccl_ == nullptr || nccl_->pieces() == 0);
    Nccl::TearDown();
  }

  // Of the rank's memory, for so many floats.
  float* Piece(int rank, int64_t count = kCount) {
    pieces_.resize(static_cast<size_t>(host_->size()));
    const auto memory = AllocatorOf(memories_[static_cast<size_t>(rank)])->Allocate(count * 4);
    EXPECT_THAT(memory, IsOk());
    pieces_[static_cast<size_t>(rank)].push_back(*memory);
    return static_cast<float*>(*memory);
  }

  float* Plain(int rank, int64_t count = kCount) {
    plain_.resize(static_cast<size_t>(host_->size()));
    return plain_[static_cast<size_t>(rank)].emplace_back(static_cast<size_t>(count)).data();
  }

  void Free(int rank, float* piece) {
    std::erase(pieces_[static_cast<size_t>(rank)], piece);
    AllocatorOf(memories_[static_cast<size_t>(rank)])->Free(piece);
  }

  // An allreduce in place of r + 1 on rank r.
  std::vector<absl::Status> Sum(const std::vector<float*>& tensors,
                                std::chrono::milliseconds timeout = std::chrono::seconds(5)) {
    HostOfRanks::Operations operations;
    for (int r = 0; r < host_->size(); ++r) {
      float* const tensor = tensors[static_cast<size_t>(r)];
      std::fill_n(tensor, kCount, static_cast<float>(r + 1));
      const TensorView view(tensor, kCount, DType::kF32);
      const Call call{.kind = CallKind::kAllReduce, .in = view, .out = view, .timeout = timeout};
      operations.push_back(backends_[static_cast<size_t>(r)]->Make(host_->OnGpu(r, call)));
      operations.back()->StartClock(std::chrono::steady_clock::now());
    }
    return Ended(operations);
  }

  void ExpectSum(const std::vector<float*>& tensors) {
    const int size = host_->size();
    for (int r = 0; r < size; ++r) {
      ASSERT_THAT(host_->gpu()->Synchronize(host_->stream(r)), IsOk());
      const float* const tensor = tensors[static_cast<size_t>(r)];
      EXPECT_THAT(std::vector<float>(tensor, tensor + kCount), Each(static_cast<float>(size * (size + 1)) / 2));
    }
  }

  std::vector<std::vector<void*>> pieces_;              // by rank
  std::vector<std::vector<std::vector<float>>> plain_;  // likewise
};

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

// Memory that is registered is not given to NCCL beside such as is not.
TEST_F(NcclMemory, GoesAnotherWayWhereOtherRanksHaveNone) {
  Start(2);
  const std::vector<float*> both = {Piece(0, 2 * kCount), Piece(1, 2 * kCount)};
  float* const plain = Plain(1);
  ASSERT_THAT(Sum(both), Each(IsOk()));
  ExpectSum(both);
  EXPECT_EQ(nccl_->registered, 2);
  const std::vector<std::vector<float*>> mixed = {{both[0], plain}, {both[0] + 4, both[1]}, {Plain(0), both[1]}};
  for (const auto& tensors : mixed) {
    ASSERT_THAT(Sum(tensors), Each(IsOk()));
    ExpectSum(tensors);
  }
  ASSERT_THAT(Sum(both), Each(IsOk()));
  ExpectSum(both);
  EXPECT_EQ(nccl_->registrations, 2);
}

// Every kind of call, with tensors here and there: as with tensors in plain memory.
TEST_F(NcclMemory, CallsAreRightWhereverTensorsLie) {
  constexpr int kRanks = 3;
  constexpr int64_t kEach = 40, kAll = kRanks * kEach;
  Start(kRanks);
  std::vector<std::vector<float*>> in_pieces, out_pieces;
  for (int i = 0; i < 2; ++i) {
    in_pieces.push_back({Piece(0, kAll), Piece(1, kAll), Piece(2, kAll)});
    out_pieces.push_back({Piece(0, kAll), Piece(1, kAll), Piece(2, kAll)});
  }
  const std::vector<int64_t> counts(kRanks, kEach);
  constexpr CallKind kKinds[] = {CallKind::kAllReduce, CallKind::kReduceScatter, CallKind::kAllGather,
                                 CallKind::kBroadcast, CallKind::kReduce,        CallKind::kAllToAll};
  std::mt19937 random(5);
  for (int round = 0; round < 120; ++round) {
    const CallKind kind = kKinds[random() % 6];
    const bool in_place = random() % 2 == 0 || kind == CallKind::kBroadcast, alike = random() % 3 != 0;
    const bool gathers = kind == CallKind::kAllGather, scatters = kind == CallKind::kReduceScatter;
    const auto common = random() % 3;
    SCOPED_TRACE(absl::StrCat("round ", round, ", kind ", static_cast<int>(kind), ", in place ", in_place));
    std::vector<std::vector<float>> results[2];
    for (const bool plain : {true, false}) {
      HostOfRanks::Operations operations;
      std::vector<TensorView> outs;
      for (int r = 0; r < kRanks; ++r) {
        const auto index = static_cast<size_t>(r);
        const auto which = plain ? 2 : alike ? common : random() % 3;
        float* const whole_in = which == 2 ? Plain(r, kAll) : in_pieces[which][index];
        float* const whole_out = in_place ? whole_in : which == 2 ? Plain(r, kAll) : out_pieces[which][index];
        for (int64_t i = 0; i < kAll; ++i) whole_in[i] = static_cast<float>(r * 1000 + i + round);
        const int64_t segment = r * kEach;
        TensorView in(whole_in, kAll, DType::kF32), out(whole_out, kAll, DType::kF32);
        if (gathers) in = TensorView(whole_in + (in_place ? segment : 0), kEach, DType::kF32);
        if (scatters) out = TensorView(whole_out + (in_place ? segment : 0), kEach, DType::kF32);
        if (kind == CallKind::kReduce && r != 1) out = TensorView();
        outs.push_back(out);
        Call call{.kind = kind, .in = in, .out = out, .root = 1, .timeout = std::chrono::seconds(5)};
        if (gathers || scatters || kind == CallKind::kAllToAll) call.counts = counts;
        if (kind == CallKind::kAllToAll) call.receive_counts = counts;
        operations.push_back(backends_[index]->Make(host_->OnGpu(r, call)));
      }
      ASSERT_THAT(Ended(operations), Each(IsOk()));
      host_->gpu()->Free(nullptr);
      for (const TensorView& out : outs) {
        const auto* const data = static_cast<const float*>(out.data);
        results[plain ? 1 : 0].emplace_back(data, data + out.count);
      }
    }
    EXPECT_EQ(results[0], results[1]);
  }
  EXPECT_GT(nccl_->registrations, 0);
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
  End();
  EXPECT_EQ(nccl_->registered, 0);
}

TEST_F(NcclMemory, GoesWithoutAWordAfterAnAbort) {
  Start(2);
  const std::vector<float*> tensors = {Piece(0), Piece(1)};
  ASSERT_THAT(Sum(tensors), Each(IsOk()));
  nccl_->never_launches = true;
  for (const absl::Status& status : Sum(tensors, std::chrono::milliseconds(500))) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kDeadlineExceeded, "launching"));
  }
  EXPECT_EQ(nccl_->aborted, 2);
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
