// The ranks of one host with the NCCL backend over a fake NCCL, and memory that it registers.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/gpu/nccl_fixture.h"
#include "gmock/gmock.h"
#include "support/status_matchers.h"

namespace gyre {

class NcclMemory : public Nccl {
 protected:
  static constexpr int64_t kCount = 300;

  void TearDown() override {
    End();
    for (auto& plain : plain_) plain.clear();
    for (size_t r = 0; r < pieces_.size(); ++r) {
      for (void* const piece : pieces_[r]) internal::nccl::AllocatorOf(memories_[r])->Free(piece);
    }
    EXPECT_TRUE(nccl_ == nullptr || nccl_->pieces() == 0);
    Nccl::TearDown();
  }

  // Of the rank's memory, for so many floats.
  float* Piece(int rank, int64_t count = kCount) {
    pieces_.resize(static_cast<size_t>(host_->size()));
    const auto memory = internal::nccl::AllocatorOf(memories_[static_cast<size_t>(rank)])->Allocate(count * 4);
    EXPECT_THAT(memory, support::IsOk());
    pieces_[static_cast<size_t>(rank)].push_back(*memory);
    return static_cast<float*>(*memory);
  }

  float* Plain(int rank, int64_t count = kCount) {
    plain_.resize(static_cast<size_t>(host_->size()));
    return plain_[static_cast<size_t>(rank)].emplace_back(static_cast<size_t>(count)).data();
  }

  void Free(int rank, float* piece) {
    std::erase(pieces_[static_cast<size_t>(rank)], piece);
    internal::nccl::AllocatorOf(memories_[static_cast<size_t>(rank)])->Free(piece);
  }

  // An allreduce in place of r + 1 on rank r.
  std::vector<absl::Status> Sum(const std::vector<float*>& tensors,
                                std::chrono::milliseconds timeout = std::chrono::seconds(5)) {
    HostOfRanks::Operations operations;
    for (int r = 0; r < host_->size(); ++r) {
      float* const tensor = tensors[static_cast<size_t>(r)];
      std::fill_n(tensor, kCount, static_cast<float>(r + 1));
      const TensorView view(tensor, kCount, DType::kF32);
      const internal::Call call{.kind = internal::CallKind::kAllReduce, .in = view, .out = view, .timeout = timeout};
      operations.push_back(backends_[static_cast<size_t>(r)]->Make(host_->OnGpu(r, call)));
      operations.back()->StartClock(std::chrono::steady_clock::now());
    }
    return Ended(operations);
  }

  void ExpectSum(const std::vector<float*>& tensors) {
    const int size = host_->size();
    for (int r = 0; r < size; ++r) {
      ASSERT_THAT(host_->gpu()->Synchronize(host_->stream(r)), support::IsOk());
      const float* const tensor = tensors[static_cast<size_t>(r)];
      EXPECT_THAT(std::vector<float>(tensor, tensor + kCount),
                  testing::Each(static_cast<float>(size * (size + 1)) / 2));
    }
  }

  std::vector<std::vector<void*>> pieces_;              // by rank
  std::vector<std::vector<std::vector<float>>> plain_;  // likewise
};

}  // namespace gyre
