// Communicator: a group of ranks and the collective operations among them.
//
// Calling discipline (MPI's and NCCL's): all ranks of a communicator call the same operations in the same order, with
// the same dtype, counts, reduction and root. A call that differs ends in kInvalidArgument on every rank, with a
// message that names both sides. A call with wrong arguments takes its turn all the same. Point-to-point messages are
// matched per ordered pair of ranks, independently of the collectives.
//
// Buffers: contiguous memory of any alignment on the host, or on a GPU (see tensor.h): on the host on all ranks,
// or on a GPU on all of them, which stays one GPU of each rank for all calls of a communicator. An empty tensor names
// its device too. Memory from Runtime::Allocate(bytes) is shared with the other ranks of the host, and large allreduces
// of it need no copies. Inputs and outputs must not overlap, unless exactly as the operation allows ("`in` may be
// `out`"): kInvalidArgument. All counts are 64-bit and count elements.
//
// Status: every operation returns by its deadline (options.timeout, or the runtime's operation_timeout). The time of an
// asynchronous or queued call runs from the call on; that of a blocking one from its first stall, or its second step of
// work where it does not stall, which is microseconds (for large buffers: milliseconds) after the call.
//   kInvalidArgument     a wrong argument here or on another rank, or ranks whose calls differ: on all ranks, nothing
//                        was changed, the communicator stays usable
//   kAborted             a rank was lost, or left, in mid-operation: outputs are undefined; names the rank
//   kDeadlineExceeded    names the ranks that did not come, or says that all had come and it was still at work; the
//                        communicator is unusable from then on
//   kFailedPrecondition  the communicator is unusable after one of the two above, or the runtime was shut down
//   kUnimplemented       tensors on GPUs where CUDA cannot be used; likewise kUnavailable
//
// Over several hosts a wrong call, or calls that differ, break the communicator too: it is unusable from then on, and
// in-place buffers may have changed. Half types are rounded once on each host, once for each step between hosts,
// and once where a scale is left to apply after that. Of a scale below 1, such as an average's, sums of kF16 take the
// power of two on each host, before they cross hosts, and the rest after: so an average does not overflow midway.
//
// Threads: any thread may call any method. Blocking calls run on the calling thread. Operations on one communicator
// that are issued from several threads at once are ordered as they arrive, which the ranks must agree on themselves.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/export.h"
#include "gyre/tensor.h"
#include "gyre/work.h"

namespace gyre {

namespace internal {
struct Call;
struct HostsCall;
class CommunicatorState;
class Gpus;
class MessageLink;
}  // namespace internal

// Options of any operation.
struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;  // default: the runtime's operation_timeout
};

// Options of a reducing operation: result = postscale * reduce(prescale * input of each rank). The scales apply to
// floating-point dtypes only (others: kInvalidArgument unless 1) and must be equal on all ranks.
struct ReduceOptions {
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;  // default: the runtime's operation_timeout
};

class GYRE_EXPORT Communicator {
 public:
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;        // this process's number in the communicator, 0 <= rank < size
  int size() const;        // how many ranks
  int local_rank() const;  // this rank's number among those of this communicator on this host
  int local_size() const;  // how many of this communicator's ranks are on this host
  int node_rank() const;   // this host's number among the communicator's hosts
  int node_count() const;  // how many hosts

  // Every rank's `out` becomes the reduction of all ranks' `in`. in.count == out.count. `in` may be `out`. The result
  // is the same, bit by bit, on all ranks.
  absl::Status AllReduce(ConstTensorView in, TensorView out, const ReduceOptions& options = {});
  absl::Status AllReduce(TensorView in_out, const ReduceOptions& options = {});

  // `in` is the concatenation of a segment for each rank; rank r's `out` becomes the reduction of all ranks' segment
  // r. Segments are in.count / size() elements (exactly), or counts[r] in the V form (counts alike on all ranks). `out`
  // may be this rank's segment of `in`.
  absl::Status ReduceScatter(ConstTensorView in, TensorView out, const ReduceOptions& options = {});
  absl::Status ReduceScatterV(ConstTensorView in, std::span<const int64_t> counts, TensorView out,
                              const ReduceOptions& options = {});

  // `out` becomes the concatenation of all ranks' `in`, in rank order. In the V form rank r contributes counts[r]
  // elements (counts alike on all ranks). `in` may be this rank's segment of `out`.
  absl::Status AllGather(ConstTensorView in, TensorView out, const CallOptions& options = {});
  absl::Status AllGatherV(ConstTensorView in, std::span<const int64_t> counts, TensorView out,
                          const CallOptions& options = {});

  // Every rank's buffer becomes the root's.
  absl::Status Broadcast(TensorView in_out, int root, const CallOptions& options = {});

  // The root's `out` becomes the reduction of all ranks' `in`; elsewhere `out` is neither read nor written and may be
  // empty. On the root `in` may be `out`.
  absl::Status Reduce(ConstTensorView in, TensorView out, int root, const ReduceOptions& options = {});

  // `in` and `out` are concatenations of a segment for each rank; rank r's segment s of `in` becomes rank s's segment
  // r of `out`. Segments are count / size() elements (exactly). In the V form this rank sends send_counts[s] elements
  // to rank s and receives receive_counts[s] from it; what s sends and what is expected must agree. `in` may be `out`
  // where send and receive counts are equal.
  absl::Status AllToAll(ConstTensorView in, TensorView out, const CallOptions& options = {});
  absl::Status AllToAllV(ConstTensorView in, std::span<const int64_t> send_counts, TensorView out,
                         std::span<const int64_t> receive_counts, const CallOptions& options = {});

  // Returns when every rank has called it.
  absl::Status Barrier(const CallOptions& options = {});

  // A message from this rank to another, matched with its Receive by the order of calls between the two. Count and
  // dtype must agree. Send returns when `data` may be written again; it may wait for the receiver.
  absl::Status Send(ConstTensorView data, int destination, const CallOptions& options = {});
  absl::Status Receive(TensorView data, int source, const CallOptions& options = {});

  // Asynchronous forms: return at once; the operation runs in the order of calls. Buffers must stay alive and
  // untouched until the Work is done. Argument errors are reported by Work::Wait.
  Work AllReduceAsync(ConstTensorView in, TensorView out, const ReduceOptions& options = {});
  Work AllReduceAsync(TensorView in_out, const ReduceOptions& options = {});
  Work ReduceScatterAsync(ConstTensorView in, TensorView out, const ReduceOptions& options = {});
  Work ReduceScatterVAsync(ConstTensorView in, std::span<const int64_t> counts, TensorView out,
                           const ReduceOptions& options = {});
  Work AllGatherAsync(ConstTensorView in, TensorView out, const CallOptions& options = {});
  Work AllGatherVAsync(ConstTensorView in, std::span<const int64_t> counts, TensorView out,
                       const CallOptions& options = {});
  Work BroadcastAsync(TensorView in_out, int root, const CallOptions& options = {});
  Work ReduceAsync(ConstTensorView in, TensorView out, int root, const ReduceOptions& options = {});
  Work AllToAllAsync(ConstTensorView in, TensorView out, const CallOptions& options = {});
  Work AllToAllVAsync(ConstTensorView in, std::span<const int64_t> send_counts, TensorView out,
                      std::span<const int64_t> receive_counts, const CallOptions& options = {});
  Work BarrierAsync(const CallOptions& options = {});
  Work SendAsync(ConstTensorView data, int destination, const CallOptions& options = {});
  Work ReceiveAsync(TensorView data, int source, const CallOptions& options = {});

  // A communicator of some of this one's ranks (a process set). Collective over *this*: every rank calls it with the
  // list of the group it belongs to; the groups of one call must be disjoint. ranks[i] becomes rank i. A rank that
  // passes an empty list takes part and gets nullptr. The result may be destroyed before or after the runtime. Meant
  // for process sets that live long: the memory of a communicator (some MiB, of 16 GiB of address space) comes back
  // only with the runtime. kResourceExhausted, on all ranks, when a rank has none left.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(std::span<const int> ranks, const CallOptions& options = {});

 private:
  friend class DistributedOptimizer;
  friend class GradientReducer;
  friend class internal::Gpus;
  friend class internal::MessageLink;
  friend class NamedOperations;
  friend class ParameterServerClient;
  friend class Runtime;
  explicit Communicator(std::shared_ptr<internal::CommunicatorState> state);
  absl::Status Run(internal::Call&& call);
  absl::Status Perform(internal::Call& call);
  Work Start(internal::Call&& call);
  std::chrono::milliseconds TimeoutOf(const internal::Call& call) const;
  bool IsWithinHost(internal::Call& call) const;
  internal::HostsCall OverHosts(internal::Call& call) const;

  std::shared_ptr<internal::CommunicatorState> state_;
};

}  // namespace gyre
