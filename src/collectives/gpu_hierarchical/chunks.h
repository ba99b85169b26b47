// Chunks: a call over hosts on tensors that are on GPUs, cut into what goes through the network at a time, and what is
// to be done with each. A chunk is dealt out to the ranks of a host: each carries a share of it to its counterparts on
// the other hosts, through a slot of the host's memory. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "collectives/call.h"
#include "collectives/hierarchical/scales.h"
#include "collectives/hierarchical/team.h"
#include "device/reduce.h"

namespace gyre::internal::gpu_hierarchical {

// Of no bytes: none.
struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  int64_t bytes = 0;
};

// What is to be done with one, in this order. Calls of kind kBarrier stand for nothing; the others' timeouts, and what
// they are part of, are the caller's to set. They refer to `counts` and `host_counts`: it is not to be moved once it
// was made.
struct Chunk {
  absl::InlinedVector<Copy, 8> pack;    // on the GPU, into the area
  Call inward;                          // of the host's ranks, on their GPUs
  Copy out;                             // of this rank's share, from the GPU into the slot
  Call between;                         // over the hosts, in the slot: for HierarchicalRail
  Copy back;                            // from the slot to the GPU
  TensorView rest;                      // what came back, if it is to be scaled by Chunks::rest(); else empty
  Call outward;                         // of the host's ranks again
  absl::InlinedVector<Copy, 8> unpack;  // on the GPU, out of the area
  RankCounts counts, host_counts;       // of local ranks; of hosts
};

// Alike on all ranks.
struct Limits {
  int64_t slot_bytes;              // a multiple of 128, with room for 8 bytes a host
  int slots;                       // at least 1
  int64_t areas_bytes = 32 << 20;  // of all areas together, unless that is less than there must be
};

class Chunks {
 public:
  // Which calls there are chunks of: allreduce (not Adasum) and broadcast; where every host has as many ranks,
  // reduce-scatter and allgather too.
  static bool Cuts(const Call& call, const Team& team);

  // `call`: valid, not empty. What it refers to, and `team`, outlive the object. REQUIRES: Cuts(call, team).
  Chunks(const Call& call, const Team& team, const Limits& limits);

  int64_t count() const { return count_; }  // alike on all ranks

  // How many are in course at a time, each with a slot of its own, and an area on the GPU of so many bytes.
  int depth() const { return depth_; }
  int64_t area_bytes() const { return area_bytes_; }  // 0: they need none

  // Chunk `index`, by way of this slot and area.
  void Make(int64_t index, std::byte* slot, std::byte* area, Chunk& chunk) const;

  const device::Reduction& rest() const { return scales_.rest; }

 private:
  // Where things lie in an area, in elements: one rail's segments after the other's, in each by host.
  struct Packing {
    int64_t total = 0;
    int64_t own_rail = 0;  // where this rank's rail begins,
    int64_t own_host = 0;  // and in that, this host's segment
  };

  void CutWhole(const Limits& limits);
  void CutSegments(const Limits& limits);
  void MakeAllReduce(int64_t index, std::byte* slot, Chunk& chunk) const;
  void MakeBroadcast(int64_t index, std::byte* slot, Chunk& chunk) const;
  void MakeReduceScatter(int64_t index, std::byte* slot, std::byte* area, Chunk& chunk) const;
  void MakeAllGather(int64_t index, std::byte* slot, std::byte* area, Chunk& chunk) const;
  int64_t DealOut(int64_t count, Chunk& chunk) const;
  template <typename Visit>
  Packing PackingOf(int64_t index, Chunk& chunk, const Visit& visit) const;
  Call Reducing(const void* in, int64_t count, void* own, const Chunk& chunk) const;
  Call Gathering(void* all, int64_t count, void* own, const Chunk& chunk) const;
  Call Between(CallKind kind, std::byte* slot, const Chunk& chunk) const;
  int64_t OwnCount(const Chunk& chunk) const { return chunk.counts[static_cast<size_t>(team_.local_rank())]; }

  const Call& call_;
  const Team& team_;
  const int64_t element_;
  const HostScales scales_;
  const RankCounts begins_;  // of segments
  const int64_t grain_;      // elements that shares are cut by
  int64_t length_ = 1;       // elements of a chunk, or of each segment in it
  int64_t count_ = 1;
  int depth_ = 1;
  int64_t area_bytes_ = 0;
};

}  // namespace gyre::internal::gpu_hierarchical
