// Push: a call on GPU tensors among ranks of one host that reach each other's GPU memory. In chunks: every rank copies
// its part of the input into its area, works on its share of all ranks' areas, and takes its results.
//
// Round k of the meeting says that all have queued, behind one event each, their copies of chunk k and their work on
// chunk k - 1. A rank that has come to it queues: a wait for all those events, taking its results of chunk k - 1, its
// work on chunk k. So a chunk costs one meeting of the hosts, which never wait for the GPU; the areas' halves
// alternate, and so do the events, which are recorded again only once nobody can still have to wait for what they
// marked. An allreduce of S bytes moves 2S for the copy in, 2S for the push (each rank reads its slice of all areas and
// stores the result to all), 2S for the copy out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/gpu_backend.h"
#include "collectives/ipc/port.h"
#include "collectives/shm/operation.h"

namespace gyre::internal::ipc {

class Push final : public Operation {
 public:
  // REQUIRES: Takes(call.call); the channel is the group's collective one, and `port` is its.
  Push(Group& group, Channel& channel, const GpuCall& call, std::shared_ptr<Port> port);

 private:
  void Publish(int64_t round) override;
  Next Consume(int64_t round) override;
  void OnEnd() override;

  void PublishOffer();
  Next OpenOffers();
  Next Connected();
  void PublishChunk(int64_t chunk);
  Next ConsumeChunk(int64_t chunk);
  bool TakeCounts();
  int64_t ChunkCount() const;

  absl::Status Stage(int64_t chunk);
  absl::Status Work(int64_t chunk);
  absl::Status TakeResults(int64_t chunk);
  absl::Status ReduceSlice(int64_t chunk);
  absl::Status ReduceSegment(int64_t chunk);
  absl::Status Gather(int64_t chunk);
  absl::Status Exchange(int64_t chunk);
  absl::Status StageSegments(int64_t chunk);
  absl::Status WaitForAll();
  absl::Status Finish();
  absl::Status Copy(void* to, const void* from, int64_t elements);
  void Note(const absl::Status& status);

  bool has_segments() const { return call_.kind == CallKind::kReduceScatter || call_.kind == CallKind::kAllToAll; }
  std::byte* area(int member, int64_t chunk) const { return port_->area(member, chunk); }
  int64_t words() const;  // of a chunk's payload

  const std::shared_ptr<Port> port_;
  const std::shared_ptr<device::Gpu> gpu_;
  const Call call_;
  const device::Gpu::Event input_ready_, output_ready_;
  const device::Reduction reduction_;
  const DType dtype_;
  const int64_t element_;
  const int64_t length_;              // elements of a chunk, of each segment where there are segments
  const RankCounts sent_, received_;  // where segments begin
  const int64_t first_chunk_round_;   // the rounds before connect the port
  int64_t chunks_ = 0;
  bool queued_ = false;   // there may be work of this call on the port's stream
  absl::Status failure_;  // of this rank's GPU: the others are told in the next round
};

}  // namespace gyre::internal::ipc
