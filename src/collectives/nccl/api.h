// What Gyre asks of NCCL, in its own words: libgyre_nccl does it by NCCL (module.cc), the tests' fake by memcpy.
// Nothing here blocks but Deregister, Abort and a Comm's destruction; what else takes longer is under way until Poll
// says that it is done, and meanwhile nothing else may be asked of that communicator but Abort. Thread-safe but for one
// Comm, which is one thread's at a time; but Abort may come while another thread is in Deregister. (NCCL does not
// promise that: in its sources, 2.28, a Deregister that waits sees the abort before all else.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "gyre/tensor.h"

namespace gyre::internal::nccl {

// How elements are combined: kSum, kProduct, kMin or kMax, or the average of all ranks' inputs. `scale`: what every
// input is multiplied by first; 1 unless `op` is kSum.
struct Combination {
  ReduceOp op = ReduceOp::kSum;
  double scale = 1.0;

  friend bool operator==(const Combination&, const Combination&) = default;
};

// One call of NCCL. All memory is the GPU's.
struct Transfer {
  enum class Kind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kReduce, kSend, kReceive };

  Kind kind = Kind::kAllReduce;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t count = 0;  // elements: as NCCL counts, of the shorter buffer
  DType dtype = DType::kU8;
  Combination combination = {};
  int root = 0;  // of broadcast and reduce; the other rank of send and receive
};

// What the ranks of a communicator find each other by; made by one of them, given to all.
using UniqueId = std::array<std::byte, 128>;

// Statuses carry NCCL's words. kInternal, but kUnavailable for failures of network or system.
class Comm {
 public:
  // Frees it: in order if it was finalized, else as by Abort.
  virtual ~Comm() = default;

  // From now on what is launched with tensors in this memory, of Api::Allocate, may be reached without copies: on all
  // ranks, which have theirs at the same places, or on none. Until Deregister, or the communicator's end, before which
  // the memory must not go.
  virtual absl::StatusOr<void*> Register(void* memory, int64_t bytes) = 0;

  // Of what Register returned, once all that uses the memory is done and graphs that do are gone; not after Finalize.
  // Blocks until other ranks' NCCL has answered, without end where such a process is stopped, but for an Abort.
  virtual absl::Status Deregister(void* handle) = 0;

  // True: what was asked for last has been done, on the host; of what was launched nothing more is to be done here.
  virtual absl::StatusOr<bool> Poll() = 0;

  // All of them as one group, in the order of `stream`: a cudaStream_t. True: launched.
  virtual absl::StatusOr<bool> Launch(std::span<const Transfer> group, void* stream) = 0;

  // Ends it once all ranks do, and all that was launched is done. True: ended.
  virtual absl::StatusOr<bool> Finalize() = 0;

  // Gives up all that is under way, on the GPU too. Graphs that hold its calls must be gone; blocks while the GPU has
  // yet to come to what was launched of them. Nothing but its destruction may follow.
  virtual void Abort() = 0;
};

class Api {
 public:
  virtual ~Api() = default;

  virtual int version() const = 0;  // NCCL's

  // Memory of GPU `gpu` (as CUDA counts) that communicators can register; aligned to 256 bytes at least. Freed when
  // nothing uses it, nor has it registered.
  virtual absl::StatusOr<void*> Allocate(int gpu, int64_t bytes) = 0;
  virtual void Free(int gpu, void* memory) = 0;

  virtual absl::StatusOr<UniqueId> MakeId() = 0;

  // Begins to make a communicator of `size` ranks, of which this is `rank`, on GPU `gpu` (as CUDA counts): Poll tells
  // when it is there.
  virtual absl::StatusOr<std::unique_ptr<Comm>> Init(const UniqueId& id, int rank, int size, int gpu) = 0;
};

}  // namespace gyre::internal::nccl
