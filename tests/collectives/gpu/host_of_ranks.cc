#include "collectives/gpu/host_of_ranks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "gtest/gtest.h"
#include "support/ranks.h"
#include "transport/shm/mesh.h"
#include "transport/shm/node.h"

namespace gyre {

using internal::Group;
using internal::GroupLayout;

HostOfRanks::HostOfRanks(int size, uint64_t seed)
    : random_(seed),
      gpu_(std::make_shared<device::FakeGpu>(static_cast<unsigned>(seed))),
      groups_(static_cast<size_t>(size)) {
  constexpr char kSecret[] = "a secret of more than sixteen bytes";
  std::vector<std::unique_ptr<shm::Mesh>> meshes;
  std::vector<shm::Mesh::Address> addresses;
  for (int r = 0; r < size; ++r) {
    meshes.push_back(*shm::Mesh::Listen({.job_id = "gpu", .epoch = 1, .rank = r, .role = Role::kRank}, kSecret, ""));
    addresses.push_back({r, meshes.back()->address()});
  }
  support::RunThreads(size, [&](const support::Rank& rank) {
    auto own = *shm::OwnMemory::Create(rank, int64_t{16} << 20);
    auto peers = addresses;
    peers.erase(peers.begin() + rank.rank);
    auto links = *meshes[static_cast<size_t>(rank.rank)]->Connect(
        peers, own, std::chrono::steady_clock::now() + std::chrono::seconds(20));
    auto node = *shm::Node::Create({.rank = rank, .job_size = rank.size}, std::move(own), std::move(links),
                                   MakeLogger(LogLevel::kOff, "test"));
    const GroupLayout layout{.size = rank.size};
    const int64_t region = *node->ReserveRegion(layout.bytes());
    std::vector<int> ranks(static_cast<size_t>(rank.size));
    std::iota(ranks.begin(), ranks.end(), 0);
    groups_[static_cast<size_t>(rank.rank)] =
        *Group::Create(node, ranks, std::vector<int64_t>(ranks.size(), region), layout);
  });
  for (int r = 0; r < size; ++r) {
    streams_.push_back(*gpu_->CreateStream());
    ready_.push_back(*gpu_->CreateEvent());
  }
}

HostOfRanks::~HostOfRanks() {
  for (const device::Gpu::Event event : ready_) gpu_->DestroyEvent(event);
  for (const device::Gpu::Stream stream : streams_) gpu_->DestroyStream(stream);
}

internal::GpuCall HostOfRanks::OnGpu(int rank, internal::Call call) const {
  const device::Gpu::Event ready = ready_[static_cast<size_t>(rank)];
  EXPECT_TRUE(gpu_->Record(ready, stream(rank)).ok());
  call.in.device = call.out.device = {.gpu = 0, .stream = stream(rank)};
  return {.call = call, .gpu = gpu_, .input_ready = ready, .output_ready = ready};
}

// True: it has ended.
bool HostOfRanks::Step(internal::Pollable& operation) {
  if (operation.Poll() == shm::Progress::kDone) return true;
  return operation.Check(std::chrono::steady_clock::now());
}

bool HostOfRanks::Run(const Operations& operations, std::chrono::milliseconds limit) {
  std::vector<size_t> left;
  for (size_t r = 0; r < operations.size(); ++r) {
    if (operations[r] != nullptr) left.push_back(r);
  }
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!left.empty() && std::chrono::steady_clock::now() < end) {
    std::ranges::shuffle(left, random_);
    std::erase_if(left, [&](size_t r) { return random_() % 4 == 0 ? false : Step(*operations[r]); });
    if (!watches_.empty()) std::erase_if(watches_, [&](const auto& watch) { return Step(*watch); });
  }
  return left.empty();
}

std::map<int, std::shared_ptr<Group>> HostOfRanks::Part(const std::vector<int>& ranks) const {
  const GroupLayout layout{.size = static_cast<int>(ranks.size())};
  std::vector<int64_t> regions;
  for (const int rank : ranks) regions.push_back(*group(rank)->node().ReserveRegion(layout.bytes()));
  std::map<int, std::shared_ptr<Group>> part;
  for (const int rank : ranks) part[rank] = *Group::Create(group(rank)->shared_node(), ranks, regions, layout);
  return part;
}

bool HostOfRanks::RunWatches(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!watches_.empty() && std::chrono::steady_clock::now() < end) {
    std::erase_if(watches_, [&](const auto& watch) { return Step(*watch); });
  }
  return watches_.empty();
}

}  // namespace gyre
