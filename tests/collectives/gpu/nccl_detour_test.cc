// Tensors of which NCCL's communicators have registered the memory of some, in every kind of call: by way of other
// memory where ranks differ. The fake NCCL says what it does not take.
#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/gpu/nccl_memory_fixture.h"
#include "collectives/nccl/detour.h"
#include "gmock/gmock.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using internal::Call;
using internal::CallKind;
using support::IsOk;
using support::MatchesStatus;
using testing::Each;

using NcclDetour = NcclMemory;

// Memory that is registered is not given to NCCL beside such as is not.
TEST_F(NcclDetour, GoesAnotherWayWhereOtherRanksHaveNone) {
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
TEST_F(NcclDetour, CallsAreRightWhereverTensorsLie) {
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

// The root alone has an output: no rank needs memory beside its tensors.
TEST_F(NcclDetour, AReduceOfWhatIsRegisteredTakesNoOther) {
  Start(3);
  const std::vector<float*> tensors = {Piece(0), Piece(1), Piece(2)};
  ASSERT_THAT(Sum(tensors), Each(IsOk()));
  ExpectSum(tensors);
  float* const apart = Piece(1);
  host_->gpu()->FailAllocate(absl::ResourceExhaustedError("the GPU is full"));
  for (float* const out : {tensors[1], apart}) {
    HostOfRanks::Operations operations;
    for (int r = 0; r < 3; ++r) {
      float* const tensor = tensors[static_cast<size_t>(r)];
      std::fill_n(tensor, kCount, static_cast<float>(r + 1));
      const TensorView in(tensor, kCount, DType::kF32);
      const TensorView of_root = r == 1 ? TensorView(out, kCount, DType::kF32) : TensorView();
      operations.push_back(backends_[static_cast<size_t>(r)]->Make(host_->OnGpu(
          r, {.kind = CallKind::kReduce, .in = in, .out = of_root, .root = 1, .timeout = std::chrono::seconds(5)})));
    }
    ASSERT_THAT(Ended(operations), Each(IsOk()));
    ASSERT_THAT(host_->gpu()->Synchronize(host_->stream(1)), IsOk());
    EXPECT_THAT(std::vector<float>(out, out + kCount), Each(6.0f));
  }
  EXPECT_EQ(nccl_->registered, 4);
  host_->gpu()->FailAllocate(absl::OkStatus());
}

// Other memory is bounded, whatever there is to exchange: 2.5 rounds' worth.
TEST_F(NcclDetour, ADetourGoesInRounds) {
  constexpr int64_t kMany = internal::nccl::kDetourBytes / 4 * 5 / 8;
  Start(2);
  float* const piece = Piece(0, kMany);
  std::vector<float*> tensors = {piece, Piece(1, kMany)};
  ASSERT_THAT(Sum(tensors), Each(IsOk()));
  ExpectSum(tensors);
  tensors[1] = Plain(1, kMany);
  const size_t allocations = host_->gpu()->allocations();
  const int launches = nccl_->launches;
  HostOfRanks::Operations operations;
  for (int r = 0; r < 2; ++r) {
    float* const tensor = tensors[static_cast<size_t>(r)];
    for (int64_t i = 0; i < kMany; ++i) tensor[i] = static_cast<float>(r + i % 1000);
    const TensorView view(tensor, kMany, DType::kF32);
    operations.push_back(backends_[static_cast<size_t>(r)]->Make(
        host_->OnGpu(r, {.kind = CallKind::kAllReduce, .in = view, .out = view, .timeout = std::chrono::seconds(5)})));
  }
  ASSERT_THAT(Ended(operations), Each(IsOk()));
  for (int r = 0; r < 2; ++r) {
    ASSERT_THAT(host_->gpu()->Synchronize(host_->stream(r)), IsOk());
    const float* const tensor = tensors[static_cast<size_t>(r)];
    int64_t wrong = 0;
    for (int64_t i = 0; i < kMany; ++i) wrong += tensor[i] != static_cast<float>(2 * (i % 1000) + 1) ? 1 : 0;
    EXPECT_EQ(wrong, 0) << "rank " << r;
  }
  EXPECT_EQ(nccl_->launches - launches, 2 * 3);
  EXPECT_EQ(host_->gpu()->allocations(), allocations + 1);  // of the one that needs it
}

// The ranks hear of it before NCCL is given anything: the communicator is as it was.
TEST_F(NcclDetour, WhereThereIsNoRoomForADetourTheCallEndsAlone) {
  Start(2);
  const std::vector<float*> both = {Piece(0), Piece(1)};
  ASSERT_THAT(Sum(both), Each(IsOk()));
  ExpectSum(both);
  const int launches = nccl_->launches;
  host_->gpu()->FailAllocate(absl::ResourceExhaustedError("the GPU is full"));
  const auto statuses = Sum({both[0], Plain(1)});
  EXPECT_THAT(statuses[0], MatchesStatus(absl::StatusCode::kResourceExhausted, "the GPU is full"));
  EXPECT_THAT(statuses[1], MatchesStatus(absl::StatusCode::kResourceExhausted, "rank 0 has no room"));
  host_->gpu()->FailAllocate(absl::OkStatus());
  EXPECT_EQ(nccl_->launches, launches);
  EXPECT_EQ(nccl_->aborted, 0);
  const std::vector<float*> mixed = {both[0], Plain(1)};
  for (const auto& tensors : {both, mixed}) {
    ASSERT_THAT(Sum(tensors), Each(IsOk()));
    ExpectSum(tensors);
  }
}

// An alltoall in place is sent from a copy, registered or not, and needs so much and no more.
TEST_F(NcclDetour, WhereThereIsNoRoomForAnAllToAllInPlaceTheCallEndsAlone) {
  Start(2);
  const std::vector<int64_t> counts = {kCount / 2, kCount / 2};
  std::vector<float*> tensors = {Plain(0), Plain(1)};
  ASSERT_THAT(Sum(tensors), Each(IsOk()));
  ExpectSum(tensors);
  const auto exchange = [&] {
    HostOfRanks::Operations operations;
    for (int r = 0; r < 2; ++r) {
      const TensorView view(tensors[static_cast<size_t>(r)], kCount, DType::kF32);
      operations.push_back(
          backends_[static_cast<size_t>(r)]->Make(host_->OnGpu(r, {.kind = CallKind::kAllToAll,
                                                                   .in = view,
                                                                   .out = view,
                                                                   .counts = counts,
                                                                   .receive_counts = counts,
                                                                   .timeout = std::chrono::seconds(5)})));
    }
    return Ended(operations);
  };
  host_->gpu()->FailAllocate(absl::ResourceExhaustedError("the GPU is full"));
  for (const absl::Status& status : exchange()) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kResourceExhausted, "the GPU is full"));
  }
  EXPECT_EQ(nccl_->aborted, 0);
  host_->gpu()->FailAllocate(absl::OkStatus());
  for (int turn = 0; turn < 2; ++turn) {  // of plain memory, then of such as is registered
    for (int r = 0; r < 2; ++r) std::fill_n(tensors[static_cast<size_t>(r)], kCount, static_cast<float>(r + 1));
    ASSERT_THAT(exchange(), Each(IsOk()));
    for (int r = 0; r < 2; ++r) {
      ASSERT_THAT(host_->gpu()->Synchronize(host_->stream(r)), IsOk());
      const float* const tensor = tensors[static_cast<size_t>(r)];
      EXPECT_THAT(std::vector<float>(tensor, tensor + kCount / 2), Each(1.0f));
      EXPECT_THAT(std::vector<float>(tensor + kCount / 2, tensor + kCount), Each(2.0f));
    }
    if (turn == 1) break;
    tensors = {Piece(0), Piece(1)};
    ASSERT_THAT(Sum(tensors), Each(IsOk()));
    ExpectSum(tensors);
  }
}

}  // namespace
}  // namespace gyre
