#include "collectives/hierarchical/layout.h"

#include <cstring>
#include <utility>

#include "collectives/call.h"

namespace gyre::internal {

RailSlices::RailSlices(int64_t count, int local_size, int rails, int64_t grain) {
  for (int local = 0; local < local_size; ++local) {
    const Range slice = local < rails ? SliceOf(count, rails, local, grain) : Range{count, 0};
    counts.push_back(slice.count);
    begins.push_back(slice.begin);
  }
}

std::vector<MutableBytes> CutIntoBlocks(MutableBytes slice, int blocks, int64_t element) {
  std::vector<MutableBytes> result;
  const int64_t count = static_cast<int64_t>(slice.size()) / element;
  for (int block = 0; block < blocks; ++block) {
    const Range part = SliceOf(count, blocks, block, 1);
    result.push_back(
        slice.subspan(static_cast<size_t>(part.begin * element), static_cast<size_t>(part.count * element)));
  }
  return result;
}

RailOrder::RailOrder(const Team& team, std::vector<int64_t> counts)
    : counts_(std::move(counts)), plain_begins_(Displacements(counts_)), begins_(counts_.size()) {
  for (int rail = 0; rail < team.rails(); ++rail) {
    auto& hosts = by_rail_.emplace_back();
    for (int host = 0; host < team.hosts(); ++host) {
      const int64_t begin = total_;
      const std::vector<int>& ranks = team.on_host(host);
      for (size_t local = static_cast<size_t>(rail); local < ranks.size(); local += static_cast<size_t>(team.rails())) {
        const auto rank = static_cast<size_t>(ranks[local]);
        begins_[rank] = total_;
        total_ += counts_[rank];
      }
      hosts.push_back({begin, total_ - begin});
    }
  }
}

Range RailOrder::ForRail(int rail) const {
  const auto& hosts = by_rail_[static_cast<size_t>(rail)];
  return {hosts.front().begin, hosts.back().begin + hosts.back().count - hosts.front().begin};
}

std::vector<int64_t> RailOrder::RailCounts(int local_size) const {
  std::vector<int64_t> counts(static_cast<size_t>(local_size));
  for (size_t rail = 0; rail < by_rail_.size(); ++rail) counts[rail] = ForRail(static_cast<int>(rail)).count;
  return counts;
}

std::vector<int64_t> RailOrder::HostCounts(int host, int local_size) const {
  std::vector<int64_t> counts(static_cast<size_t>(local_size));
  for (size_t rail = 0; rail < by_rail_.size(); ++rail) counts[rail] = ForHost(static_cast<int>(rail), host).count;
  return counts;
}

void RailOrder::Pack(const void* in_rank_order, void* in_rail_order, int64_t element) const {
  for (size_t rank = 0; rank < counts_.size(); ++rank) {
    if (counts_[rank] == 0) continue;
    std::memcpy(static_cast<char*>(in_rail_order) + begins_[rank] * element,
                static_cast<const char*>(in_rank_order) + plain_begins_[rank] * element,
                static_cast<size_t>(counts_[rank] * element));
  }
}

void RailOrder::Unpack(const void* in_rail_order, void* in_rank_order, int64_t element) const {
  for (size_t rank = 0; rank < counts_.size(); ++rank) {
    if (counts_[rank] == 0) continue;
    std::memcpy(static_cast<char*>(in_rank_order) + plain_begins_[rank] * element,
                static_cast<const char*>(in_rail_order) + begins_[rank] * element,
                static_cast<size_t>(counts_[rank] * element));
  }
}

}  // namespace gyre::internal
