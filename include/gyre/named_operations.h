// NamedOperations: collective operations that are matched by name instead of by the order of calls. Ranks submit them
// in any order, from any thread; each runs once all ranks have submitted it.
//
// After three identical cycles of names the order is frozen, and from then on operations run with no messages but their
// own data (over several hosts also a byte each, to agree), as long as all go on with the same names. One that does not
// ends that for all. In a frozen order an operation waits for those before it, 100 ms at most; one that is never
// submitted holds the others up for no longer than half their time-outs.
//
// Status of an operation, the same on all ranks that have submitted it where nothing else is said:
//   kInvalidArgument     ranks submitted it differently (what, dtype, count, reduction, scales, root, group, host or
//                        GPU), one had wrong arguments (a stream that is being captured into a graph, too), or a rank
//                        that it needs has joined: says who and what
//   kDeadlineExceeded    names the tensor and the ranks that did not submit it within the time-out of the first who
//                        did. Those learn the same when they submit it, so that names stay in step. Of one that all
//                        have submitted, as of Communicator's operations: nothing runs any more
//   kUnimplemented, kUnavailable  of a tensor on a GPU, on this rank alone: the GPU cannot be used, says why; the
//                        others have kInvalidArgument
//   kAlreadyExists       an operation of that name is in flight on this rank; the others are not told
//   kAborted             a rank was lost, has left, or has destroyed its NamedOperations: nothing runs any more. A rank
//                        may leave once its operations have ended well: the other ranks' end well, too
//   kFailedPrecondition  this rank has joined; or nothing runs any more; or, of Wait on this rank alone, a tensor's
//                        stream is being captured into a graph: see below
//   others               as of Communicator's operations, or this rank's GPU failed amid one: nothing runs any more
// Where it does not say that nothing runs any more, the others go on, and the tensors are as they were; but where it is
// about a stream that is being captured when Wait is called, the operation has ended as it may.
//
// Tensors may be on GPUs (tensor.h): on all ranks or on none, and of each rank on one GPU. What was queued on a
// tensor's stream before it was submitted comes before the operation. What is queued once Wait of its Work has
// returned, or Done was true, comes after it, however it ended. What is queued in between neither waits for it nor is
// waited for; the stream must live until then, and not be captured into a graph: while it is, Done is false, and Wait
// ends in kFailedPrecondition once the operation has ended, and tells how when it is called again after the capture.
//
// This object's communicator is its own, on GPUs also towards NCCL, which wants GPU calls of several communicators in
// the same order on all ranks (docs/gpu_backends.md): where all have GPUs of their own and NCCL, wait for all named
// operations on GPUs before another communicator, a GradientReducer or a DistributedOptimizer begins to use them (a
// step begins with its first gradient), and the other way round. Where that is not done, both may stand still until
// their deadlines, and nothing runs any more on either.
//
// Thread-safe. Buffers must stay alive and untouched until the Work is done. Submitting never blocks, but for the first
// tensor on a GPU, which opens it, and a gather that lets go of memory on a GPU (Gathered).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/communicator.h"
#include "gyre/export.h"
#include "gyre/tensor.h"
#include "gyre/work.h"

namespace gyre {

namespace internal {
class Conductor;
struct GpuMemory;
}  // namespace internal

// A tensor that is the input and the output of an operation.
struct NamedTensor {
  std::string name;
  TensorView view;
};

// What an allgather brings: every rank's elements, in rank order.
struct Gathered {
  std::vector<std::byte> bytes;
  std::vector<int64_t> counts;  // elements by rank

  // Of a tensor on a GPU, in place of bytes: the elements there, on the input's stream, in `memory`, which copies of
  // this object share, and which is freed with the last of them; that waits for work that uses it. The next gather
  // takes the memory again where it is large enough. If it is not, new memory is at least twice as large where the GPU
  // has room for that, else as large as needed, and has the former with it until it is freed itself: together less than
  // four times what the largest gather needed. If a copy shares it, or the stream is another, submitting lets go of it.
  TensorView on_gpu{};
  std::shared_ptr<internal::GpuMemory> memory{};
};

// Of this rank, since Create.
struct NamedStatistics {
  int64_t control_messages = 0;   // sent, to agree: none while the order is frozen
  int64_t agreements = 0;         // over several hosts: exchanges of one byte, one before each frozen call
  int64_t operations = 0;         // carried out
  int64_t frozen_operations = 0;  // of these, in a frozen order
  int64_t freezes = 0;            // how often the order was frozen
  std::string last_deviation;     // who left a frozen order last, with both sides' tensors; empty: nobody
};

class GYRE_EXPORT NamedOperations {
 public:
  // Collective over the communicator, of which it makes one of its own (Communicator::Split): operations by name and
  // calls on `communicator` never meet. It may be destroyed before or after the communicator and the runtime.
  static absl::StatusOr<std::unique_ptr<NamedOperations>> Create(Communicator& communicator);

  // Ends it on all ranks. Operations of this rank in flight end in kFailedPrecondition, unless all ranks have begun
  // them. Waits until the other ranks' threads have taken note, a second at most: so destroy it when all work is done.
  ~NamedOperations();
  NamedOperations(const NamedOperations&) = delete;
  NamedOperations& operator=(const NamedOperations&) = delete;

  // What each does, and what its options mean: Communicator's method of the same name. Tensors of a name have equal
  // counts on all ranks, an allgather's excepted.
  Work AllReduce(std::string_view name, ConstTensorView in, TensorView out, const ReduceOptions& options = {});
  Work AllReduce(std::string_view name, TensorView in_out, const ReduceOptions& options = {});
  Work AllGather(std::string_view name, ConstTensorView in, Gathered& out, const CallOptions& options = {});
  Work Broadcast(std::string_view name, TensorView in_out, int root, const CallOptions& options = {});

  // A group, all or nothing: none runs before all ranks have submitted all of it, and then they run in this order. The
  // Work ends when all have, with the first error. On GPUs, tensors of one dtype that are next to each other in it
  // travel as one, of 64 MiB at most: their sums may then be rounded in another order than those of each alone.
  Work AllReduce(std::span<const NamedTensor> group, const ReduceOptions& options = {});

  // This rank has run out of data. Until all ranks have joined, it contributes to what the others submit: zeros to
  // sums, what is neutral to min, max and product (which then take no prescale), nothing to allgathers; to what is on
  // GPUs, from the one that its own tensors were on, which it must have brought before (kInvalidArgument). Averages are
  // over the ranks that have data. The Work ends when all have joined, without a time-out. *last_rank, if given: who
  // joined last; it must live until then. Until then this rank submits nothing.
  Work Join(int* last_rank = nullptr);

  // Blocking: every tensor becomes the root's; in any order, for they are matched by name.
  absl::Status BroadcastParameters(std::span<const NamedTensor> parameters, int root, const CallOptions& options = {});

  // Blocking: `object` becomes the root's, of whatever size.
  absl::Status BroadcastObject(std::string_view name, std::vector<std::byte>& object, int root,
                               const CallOptions& options = {});

  NamedStatistics statistics() const;

 private:
  explicit NamedOperations(std::shared_ptr<internal::Conductor> conductor);

  const std::shared_ptr<internal::Conductor> conductor_;
};

}  // namespace gyre
