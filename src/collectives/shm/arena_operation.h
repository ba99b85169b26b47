// ArenaOperation: a collective that goes one of two ways.
//
//   staged   chunk by chunk through the slots: two copies of every byte, one meeting a chunk
//   direct   between the members' buffers, where those lie in arenas, which every member has mapped: one copy, two
//            meetings in all, the second so that nobody returns while others still work on its buffers
//
// The first round decides: who could go direct publishes where its buffers lie, who could not its first chunk. Unless
// all could, they go on staged.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "collectives/shm/operation.h"

namespace gyre::internal {

// Copies to be done, in pieces. No two of them overlap.
class Copies {
 public:
  void Add(void* to, const void* from, int64_t bytes);

  // Copies as much as `bytes`; whether that was all.
  bool Advance(int64_t bytes);

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    int64_t bytes;
    int64_t block;  // most bytes at a time
  };
  absl::InlinedVector<Copy, 8> copies_;
  size_t next_ = 0;
};

class ArenaOperation : public Operation {
 protected:
  // `small`: staged in any case; alike on all ranks. REQUIRES: unless so, chunks have more than Slot::kInlineBytes.
  ArenaOperation(Group& group, Channel& channel, const Signature& signature, std::chrono::milliseconds timeout,
                 bool small)
      : Operation(group, channel, signature, timeout), way_(small ? Way::kStaged : Way::kUndecided) {}

  // Calls up to so many bytes a rank are small: there the second meeting costs more than the second copy.
  static int64_t SmallBytes(const Group& group) { return group.layout().crowded ? 32 << 10 : 4 << 10; }

  // Where this rank's buffers lie, if they allow the direct way: at least `in` is then not kNowhere.
  virtual shm::Slot::Offsets Share() = 0;

  // Staged: as Publish and Consume, by chunk.
  virtual void PublishChunk(int64_t chunk) = 0;
  virtual Next ConsumeChunk(int64_t chunk) = 0;

  // All have published the first round: false ends the operation, with Refuse.
  virtual bool Agree() { return true; }

  enum class Sharing { kNone, kSome, kAll };
  virtual Sharing LookAround();  // who has shared its buffers: by default all must

  // Direct: prepares. False: a member announced what cannot be (see Reach).
  virtual bool BeginDirect() = 0;

  // Direct: does some of this rank's work, kPieceBytes at most; whether that was all.
  virtual bool WorkDirectly() = 0;

  // A piece of direct work, in bytes of all ranks together, between looks at deadline and losses: a few milliseconds.
  static constexpr int64_t kPieceBytes = 16 << 20;

  // Whether others may know where this rank's buffers lie and so still work on them.
  bool MayBeDirect() const { return way_ != Way::kStaged && shared_; }

  // The offset of this rank's [data, data + bytes) in its arena, or kNowhere. Nothing is everywhere.
  int64_t OffsetOf(const void* data, int64_t bytes) const;

  // [offset, offset + bytes) of a member's arena; null if that does not lie in it.
  std::byte* Reach(int member, int64_t offset, int64_t bytes) const;

 private:
  enum class Way { kUndecided, kStaged, kDirect };

  void Publish(int64_t round) final;
  Next Consume(int64_t round) final;
  Next Decide(int64_t round);
  Next Direct();
  int RankOf(int member) const;

  Way way_;
  bool shared_ = false;      // this rank's buffers
  bool working_ = false;     // directly
  int64_t first_round_ = 0;  // the round of chunk 0
};

}  // namespace gyre::internal
