// What libgyre and libgyre_mpi, the module that links MPI, say to each other. The module is loaded only where MPI is
// asked for (loader.cc), so that libgyre runs where no MPI is: docs/decisions/mpi_backend.md.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "gyre/tensor.h"

namespace gyre::internal::mpi {

// A collective under way.
class Request {
 public:
  // Of one that has not ended: MPI may still use its memory, which is never freed then; nor is MPI finalized.
  virtual ~Request() = default;

  // Whether it has ended. kInternal: MPI's error, in its words.
  virtual absl::StatusOr<bool> Test() = 0;
};

// Where segments lie, in elements.
struct Segments {
  std::span<const int> counts;
  std::span<const int> begins;
};

// The collectives of all ranks of the MPI job, on a communicator of Gyre's own. None blocks. All memory, the segments'
// numbers too, belongs to `memory`, which is held until the request has ended. Reductions are of whole numbers, kF32
// and kF64, by kSum, kMin, kMax and kProduct.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  using Memory = std::shared_ptr<const void>;
  using Started = absl::StatusOr<std::unique_ptr<Request>>;
  virtual Started AllReduce(Memory memory, const void* in, void* out, int count, DType dtype, ReduceOp op) = 0;
  virtual Started Reduce(Memory memory, const void* in, void* out, int count, DType dtype, ReduceOp op, int root) = 0;
  virtual Started ReduceScatter(Memory memory, const void* in, void* out, std::span<const int> counts, DType dtype,
                                ReduceOp op) = 0;
  virtual Started Broadcast(Memory memory, void* data, int bytes, int root) = 0;
  virtual Started AllGather(Memory memory, const void* in, int bytes, void* out, Segments segments) = 0;
  virtual Started AllToAll(Memory memory, const void* in, Segments sent, void* out, Segments received) = 0;
  virtual Started Barrier() = 0;
};

// The one function that the module exports, as "gyre_mpi_module".
struct Module {
  const char* version;  // of Gyre: must be the caller's

  // Initializes MPI if nobody has, and then finalizes it at the process's end. All ranks of MPI's world must call it.
  // Blocks until they have, at most until `deadline`, but for MPI's own initialization.
  //   kFailedPrecondition  MPI was initialized without support for threads; or is finalized
  absl::StatusOr<std::unique_ptr<Transport>> (*open)(TimePoint deadline);
};
using GetModule = const Module* (*)();

}  // namespace gyre::internal::mpi
