#include "collectives/gpu/hosts_of_ranks.h"

#include <chrono>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "collectives/gpu/host_of_ranks.h"

namespace gyre {

using internal::Team;

namespace {

std::vector<int> HostsByRank(const std::vector<int>& sizes) {
  std::vector<int> hosts;
  for (size_t host = 0; host < sizes.size(); ++host) {
    hosts.insert(hosts.end(), static_cast<size_t>(sizes[host]), static_cast<int>(host));
  }
  return hosts;
}

std::vector<std::shared_ptr<device::FakeGpu>> GpuOfEach(const std::vector<int>& sizes, uint64_t seed) {
  std::vector<std::shared_ptr<device::FakeGpu>> gpus;
  for (size_t host = 0; host < sizes.size(); ++host) {
    const auto gpu = std::make_shared<device::FakeGpu>(static_cast<unsigned>(seed * 100 + host));
    gpus.insert(gpus.end(), static_cast<size_t>(sizes[host]), gpu);
  }
  return gpus;
}

}  // namespace

HostsOfRanks::HostsOfRanks(const std::vector<int>& sizes, uint64_t seed)
    : RanksOnGpus(GpuOfEach(sizes, seed), seed),
      hosts_(HostsByRank(sizes)),
      network_({.ranks = static_cast<int>(hosts_.size()), .seed = seed}) {
  int first = 0;
  for (const int of_host : sizes) {
    for (auto& group : GroupOfHost(first, of_host, size())) groups_.push_back(std::move(group));
    first += of_host;
  }
  std::vector<int> ranks(hosts_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto selector = std::make_shared<internal::Selector>(internal::PathModel());
  for (const int rank : ranks) {
    const internal::TeamLinks links{
        .open = [this, rank](uint64_t channel, const std::vector<int>&) { return network_.Open(rank, channel); },
        .announce =
            [this, rank](uint64_t, const shm::LastWords::Content& words) {
              // At once and to all; how announcements travel is the transport's own test.
              for (int other = 0; other < size(); ++other) {
                if (host(other) != host(rank)) team(other)->Break(absl::Status(words.code, words.text), words);
              }
            },
        .selector = selector};
    teams_.push_back(std::make_shared<Team>(group(rank), internal::PlacesOf(ranks, hosts_), rank, 77, links));
  }
}

HostsOfRanks::~HostsOfRanks() = default;

void HostsOfRanks::Lose(int rank) {
  for (int other = 0; other < size(); ++other) {
    if (other != rank)
      group(other)->node().LearnLoss(rank, absl::StrCat("rank ", rank, " was lost: its process ended"));
  }
  network_.Kill(rank);
}

void HostsOfRanks::LetTimePass() {
  network_.Advance(network_.now() + std::chrono::milliseconds(1));
}

}  // namespace gyre
