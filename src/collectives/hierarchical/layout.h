// How data are dealt out to the rails of a team: pure arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/call.h"
#include "collectives/hierarchical/team.h"
#include "collectives/shm/slices.h"
#include "net/bytes.h"

namespace gyre::internal {

// Elements cut for the ranks of a host: counts by local rank, of which only those on the first `rails` are not 0, and
// where each begins.
struct RailSlices {
  RailSlices(int64_t count, int local_size, int rails, int64_t grain);

  RankCounts counts;
  RankCounts begins;
};

// A rail's slice as so many blocks of a schedule. `element`: bytes of one.
std::vector<MutableBytes> CutIntoBlocks(MutableBytes slice, int blocks, int64_t element);

// Segments of all ranks of a team, put in an order in which each rail's are contiguous: by rail, then by host, then by
// local number. Rail k carries the segments of local ranks k, k + rails, k + 2 rails, ...
class RailOrder {
 public:
  // `counts`: elements by rank of the team.
  RailOrder(const Team& team, std::vector<int64_t> counts);

  int64_t total() const { return total_; }

  // Where this rank's segment begins in rail order.
  int64_t begin(int rank) const { return begins_[static_cast<size_t>(rank)]; }
  int64_t count(int rank) const { return counts_[static_cast<size_t>(rank)]; }

  // What one rail carries for one host, and for all.
  Range ForHost(int rail, int host) const { return by_rail_[static_cast<size_t>(rail)][static_cast<size_t>(host)]; }
  Range ForRail(int rail) const;

  // Elements by local rank: of the rails' parts of everything, and of one host.
  std::vector<int64_t> RailCounts(int local_size) const;
  std::vector<int64_t> HostCounts(int host, int local_size) const;

  // Copies between a buffer in the order of ranks and one in rail order.
  void Pack(const void* in_rank_order, void* in_rail_order, int64_t element) const;
  void Unpack(const void* in_rail_order, void* in_rank_order, int64_t element) const;

 private:
  std::vector<int64_t> counts_;
  RankCounts plain_begins_;      // in the order of ranks
  std::vector<int64_t> begins_;  // in rail order
  std::vector<std::vector<Range>> by_rail_;
  int64_t total_ = 0;
};

}  // namespace gyre::internal
