#include "collectives/gpu/hierarchical_fixture.h"

#include <algorithm>

#include "collectives/gpu_alone.h"
#include "collectives/gpu_hierarchical/factory.h"
#include "collectives/ipc/factory.h"
#include "collectives/nccl/factory.h"
#include "gmock/gmock.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre {

namespace {

constexpr int64_t kLeastBytes = 64;  // of what NCCL's memory is given for

}  // namespace

using internal::Call;
using support::IsOk;

void HierarchicalOnGpus::Start(const std::vector<Host>& hosts, uint64_t seed) {
  hosts_ = hosts;
  std::vector<int> sizes;
  for (const Host& host : hosts) sizes.push_back(host.ranks);
  ranks_ = std::make_unique<HostsOfRanks>(sizes, seed);
  for (int r = 0; r < size(); ++r) {
    if (static_cast<size_t>(ranks_->host(r)) == nccls_.size()) {
      nccls_.push_back(std::make_unique<FakeNccl>(*ranks_->gpu(r)));
    }
  }
  const auto any = [&hosts](By by) {
    return std::ranges::any_of(hosts, [by](const Host& host) { return host.by == by; });
  };
  const auto taken = [ipc = any(By::kIpc), nccl = any(By::kNccl)](const Call& call) {
    return (!ipc || internal::ipc::Takes(call)) && (!nccl || internal::nccl::Takes(call));
  };
  for (int r = 0; r < size(); ++r) {
    auto rings = std::make_shared<internal::staged::Rings>(ranks_->gpu(r), ranks_->group(r)->node().arena(), kSlots);
    backends_.push_back(internal::gpu_hierarchical::MakeBackend(ranks_->calls(r), std::move(rings), Within(r), taken));
  }
}

std::shared_ptr<internal::GpuBackend> HierarchicalOnGpus::Within(int rank) {
  const int host = ranks_->host(rank);
  switch (hosts_[static_cast<size_t>(host)].by) {
    case By::kAlone: return std::make_shared<internal::GpuAlone>();
    case By::kIpc: return internal::ipc::MakeBackend(ranks_->group(rank), ranks_->gpu(rank), kHalf);
    case By::kNccl: break;
  }
  return internal::nccl::MakeBackend(
      nccl(host), ranks_->group(rank), nullptr, ranks_->gpu(rank),
      internal::nccl::MakeMemory(nccl(host), ranks_->gpu(rank), kLeastBytes),
      [this](const auto& /*owner*/, auto& /*lane*/, const auto& watch) { ranks_->StartWatch(watch); });
}

// Areas' ends wait for each other: each on a thread of its own.
void HierarchicalOnGpus::End() {
  if (ranks_ == nullptr) return;
  for (int r = 0; r < size(); ++r) ranks_->gpu(r)->Stall(false);
  EXPECT_TRUE(ranks_->RunWatches());
  for (int r = 0; r < size(); ++r) {
    if (hosts_[static_cast<size_t>(ranks_->host(r))].by != By::kIpc) backends_[static_cast<size_t>(r)].reset();
  }
  support::RunThreads(size(), [this](int rank) { backends_[static_cast<size_t>(rank)].reset(); });
  backends_.clear();
  EXPECT_TRUE(ranks_->RunWatches());  // over their ends
  sums_.clear();
  for (int r = 0; r < size(); ++r) {
    EXPECT_EQ(ranks_->gpu(r)->pinned(), 0);
    EXPECT_EQ(ranks_->gpu(r)->allocations(), 0u);
    EXPECT_EQ(ranks_->gpu(r)->sharing().open(), 0);
  }
  for (const auto& nccl : nccls_) EXPECT_EQ(nccl->alive, 0);
  nccls_.clear();
  ranks_.reset();
}

std::vector<absl::Status> HierarchicalOnGpus::Ended(const Operations& operations) {
  EXPECT_TRUE(ranks_->Run(operations));
  std::vector<absl::Status> statuses;
  for (const auto& operation : operations) {
    if (operation != nullptr) statuses.push_back(operation->status());
  }
  return statuses;
}

Sum& HierarchicalOnGpus::NewSum(int64_t count) {
  return *sums_.emplace_back(std::make_unique<Sum>(*ranks_, count));
}

void HierarchicalOnGpus::ExpectSums() {
  for (const int64_t count : {kOneChunk, kChunks}) {
    Sum& sum = NewSum(count);
    EXPECT_THAT(Ended(sum.Make(backends_)), testing::Each(IsOk()));
    sum.ExpectRight();
  }
}

void HierarchicalOnGpus::ExpectUnusable() {
  for (int r = 0; r < size(); ++r) EXPECT_FALSE(ranks_->group(r)->usable()) << "rank " << r;
}

void HierarchicalOnGpus::Turn(const Operations& operations, int turns) {
  for (int i = 0; i < turns; ++i) {
    for (const auto& operation : operations) {
      if (operation == nullptr || operation->Poll() == shm::Progress::kDone) continue;
      operation->Check(std::chrono::steady_clock::now());
    }
    ranks_->network().Advance(ranks_->network().now() + std::chrono::milliseconds(1));
  }
}

}  // namespace gyre
