// The ranks of one host with the NCCL backend over a fake NCCL.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/gpu/calls.h"
#include "collectives/gpu/fake_nccl.h"
#include "collectives/gpu/host_of_ranks.h"
#include "collectives/nccl/factory.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre {

class Nccl : public testing::Test {
 protected:
  // The ranks' communicators, or those of a group of theirs.
  void Start(int size, uint64_t seed = 1) {
    memories_.clear();
    nccl_.reset();  // before what it runs on
    host_ = std::make_unique<HostOfRanks>(size, seed);
    nccl_ = std::make_unique<FakeNccl>(*host_->gpu());
    for (int r = 0; r < size; ++r) {
      memories_.push_back(internal::nccl::MakeMemory(*nccl_, host_->gpu(), kLeastBytes));
      backends_.push_back(Make(host_->group(r), memories_.back()));
    }
  }

  static constexpr int64_t kLeastBytes = 64;  // of what NCCL's memory is given for

  std::shared_ptr<internal::GpuBackend> Make(const std::shared_ptr<internal::Group>& group,
                                             const std::shared_ptr<internal::nccl::Memory>& memory) {
    return internal::nccl::MakeBackend(
        *nccl_, group, nullptr, host_->gpu(), memory,
        [this](const auto& /*owner*/, auto& /*lane*/, const auto& watch) { host_->StartWatch(watch); });
  }

  void End() {
    if (host_ == nullptr) return;
    host_->gpu()->Stall(false);
    EXPECT_TRUE(host_->RunWatches());
    backends_.clear();
    EXPECT_TRUE(host_->RunWatches());  // over their ends
    EXPECT_EQ(nccl_->alive, 0);
  }

  void TearDown() override {
    End();
    sums_.clear();
    memories_.clear();
    nccl_.reset();
    host_.reset();
  }

  // Every rank's end of an allreduce.
  std::vector<absl::Status> AllReduce(std::chrono::milliseconds timeout = std::chrono::seconds(5)) {
    sums_.push_back(std::make_unique<Sum>(*host_));
    return Ended(sums_.back()->Make(backends_, timeout));
  }

  std::vector<absl::Status> Ended(const HostOfRanks::Operations& operations) {
    EXPECT_TRUE(host_->Run(operations));
    std::vector<absl::Status> statuses;
    for (const auto& operation : operations) {
      if (operation != nullptr) statuses.push_back(operation->status());
    }
    return statuses;
  }

  void ExpectUnusable() {
    for (const absl::Status& status : AllReduce()) {
      EXPECT_THAT(status, support::MatchesStatus(absl::StatusCode::kFailedPrecondition, "unusable"));
    }
  }

  std::unique_ptr<HostOfRanks> host_;
  std::unique_ptr<FakeNccl> nccl_;
  std::vector<std::shared_ptr<internal::nccl::Memory>> memories_;  // by rank
  Backends backends_;
  std::vector<std::unique_ptr<Sum>> sums_;  // for as long as the GPU may be at work on them
};

}  // namespace gyre
