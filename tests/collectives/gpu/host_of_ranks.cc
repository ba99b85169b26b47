#include "collectives/gpu/host_of_ranks.h"

#include <numeric>
#include <utility>

#include "support/ranks.h"
#include "transport/shm/mesh.h"
#include "transport/shm/node.h"

namespace gyre {

using internal::Group;
using internal::GroupLayout;

std::vector<std::shared_ptr<Group>> GroupOfHost(int first, int size, int job_size) {
  constexpr char kSecret[] = "a secret of more than sixteen bytes";
  std::vector<std::unique_ptr<shm::Mesh>> meshes;
  std::vector<shm::Mesh::Address> addresses;
  for (int r = 0; r < size; ++r) {
    meshes.push_back(
        *shm::Mesh::Listen({.job_id = "gpu", .epoch = 1, .rank = first + r, .role = Role::kRank}, kSecret, ""));
    addresses.push_back({first + r, meshes.back()->address()});
  }
  std::vector<std::shared_ptr<Group>> groups(static_cast<size_t>(size));
  support::RunThreads(size, [&](const support::Rank& rank) {
    auto own = *shm::OwnMemory::Create(first + rank, int64_t{16} << 20);
    auto peers = addresses;
    peers.erase(peers.begin() + rank.rank);
    auto links = *meshes[static_cast<size_t>(rank.rank)]->Connect(
        peers, own, std::chrono::steady_clock::now() + std::chrono::seconds(20));
    auto node = *shm::Node::Create({.rank = first + rank, .job_size = job_size}, std::move(own), std::move(links),
                                   MakeLogger(LogLevel::kOff, "test"));
    const GroupLayout layout{.size = size};
    const int64_t region = *node->ReserveRegion(layout.bytes());
    std::vector<int> ranks(static_cast<size_t>(size));
    std::iota(ranks.begin(), ranks.end(), first);
    groups[static_cast<size_t>(rank.rank)] =
        *Group::Create(node, ranks, std::vector<int64_t>(ranks.size(), region), layout, ranks);
  });
  return groups;
}

std::map<int, std::shared_ptr<Group>> HostOfRanks::Part(const std::vector<int>& ranks) const {
  const GroupLayout layout{.size = static_cast<int>(ranks.size())};
  std::vector<int64_t> regions;
  for (const int rank : ranks) regions.push_back(*group(rank)->node().ReserveRegion(layout.bytes()));
  std::map<int, std::shared_ptr<Group>> part;
  for (const int rank : ranks) part[rank] = *Group::Create(group(rank)->shared_node(), ranks, regions, layout);
  return part;
}

}  // namespace gyre
