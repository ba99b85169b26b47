// Call: one collective operation as its caller asked for it, whatever carries it out.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "device/reduce.h"
#include "gyre/tensor.h"
#include "transport/signature.h"

namespace gyre::internal {

enum class CallKind : uint8_t {
  kAllReduce = 1,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll,
  kBarrier,
  kMessage,  // one send and its receive
  kRefused,  // what a rank announces in place of a call whose arguments are wrong
};

// What each field means for which kind is at Communicator's methods (gyre/communicator.h). It owns nothing and is cheap
// to make: every blocking call makes one.
struct Call {
  CallKind kind = CallKind::kBarrier;
  ConstTensorView in{};
  TensorView out{};
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;                 // of broadcast and reduce
  int peer = -1;                // of messages: the other rank
  bool send = false;            // of messages: in goes out, else out comes in
  bool peer_may_leave = false;  // of messages: if the peer has left in order, only this call ends
  // Elements by rank: of reduce-scatter's and allgather's segments, of what alltoall sends and receives. The uniform
  // forms fill them in too.
  std::span<const int64_t> counts{};
  std::span<const int64_t> receive_counts{};
  bool even = false;     // of alltoall: all ranks make the call with pieces of one size
  bool relayed = false;  // likewise, and pieces go by way of other ranks: the same on all, filled in
  std::optional<std::chrono::milliseconds> timeout{};  // filled in before an operation is made
  const Signature* part_of = nullptr;  // it is a piece of a call of this signature, under which its ranks meet
};

// Where the call's tensors are: both, or the one that it has.
const Device& DeviceOf(const Call& call);

// kInvalidArgument for what this rank can see to be wrong, `rank` being one of `size`.
absl::Status Validate(const Call& call, int rank, int size);

// The reduction of a reducing call.
device::Reduction ReductionOf(const Call& call, int size);

// A stream that is another one in each thread: what carries a call out is not the thread that made it, so that nothing
// could be ordered by it. `kPerThreadText`: what is said of a tensor there.
bool IsPerThread(const Device& device);
inline constexpr char kPerThreadText[] =
    "cudaStreamPerThread, which is another stream in each thread: it takes one of the program's own";

// What all ranks must agree on of the call.
Signature SignatureOf(const Call& call);

// "allreduce(f32, 1000 elements, sum)".
std::string Describe(const Signature& signature);

// What is wrong where two ranks, by name, are in different calls.
std::string Disagreement(const std::string& one, const Signature& ones, const std::string& other,
                         const Signature& others);

// Numbers by rank, without an allocation where the ranks are few.
using RankCounts = absl::InlinedVector<int64_t, 8>;

// Where each of consecutive segments begins.
RankCounts Displacements(std::span<const int64_t> counts);

// The largest of `counts`. REQUIRES: there is one
int64_t LongestOf(std::span<const int64_t> counts);

}  // namespace gyre::internal
