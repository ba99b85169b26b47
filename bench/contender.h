// Contender: a library whose allreduce is measured.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/runtime.h"

namespace gyre::bench {

enum class Buffers { kArena, kPlain };

struct AllReduceTask {
  int64_t count;  // elements
  DType dtype;
  ReduceOp op;
  Buffers buffers;  // where Gyre's lie; others take plain memory
};

// All ranks call the same methods in the same order.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual std::string name() const = 0;

  // OK if it can do the task at all.
  virtual absl::Status Prepare(const AllReduceTask& task) = 0;

  // The prepared buffers, `task.count` elements each.
  virtual void* in() = 0;
  virtual void* out() = 0;

  // One allreduce of the prepared buffers: in to out, or in place in `out`.
  virtual absl::Status Run(bool in_place) = 0;
};

std::unique_ptr<Contender> MakeGyre(Runtime& runtime);

// An MPI that this process was started under. Owns MPI_Init and MPI_Finalize.
class MpiSession {
 public:
  // kUnimplemented where this build has no MPI; kFailedPrecondition where mpirun did not start us.
  static absl::StatusOr<std::unique_ptr<MpiSession>> Start();
  virtual ~MpiSession() = default;
  virtual std::unique_ptr<Contender> MakeContender() = 0;
};

}  // namespace gyre::bench
