// Contender: a library whose collectives are measured.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/runtime.h"
#include "step/sum.h"
#include "task.h"

namespace gyre::bench {

// All ranks call the same methods in the same order.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual std::string name() const = 0;
  virtual std::string buffers() const { return "plain"; }  // the kind of memory it uses

  // Whether its results are the task's. If not it is there for its time alone, and they are not checked.
  virtual bool computes() const { return true; }

  // Makes the task's buffers. kUnimplemented if the library cannot do it; says what it lacks.
  virtual absl::Status Prepare(const Task& task) = 0;

  // Whether the prepared task can be done in place, or out of place.
  virtual bool Supports(bool in_place) const = 0;

  // Of the prepared buffers, or, where the library works in memory that is none of the host's, of a copy of them that
  // Upload passes on after it was written, and Download brings up to date with what has been done by then (Finish).
  virtual Ends ends(bool in_place) = 0;
  virtual absl::Status Upload(bool /*in_place*/) { return absl::OkStatus(); }
  virtual absl::Status Download(bool /*in_place*/) { return absl::OkStatus(); }

  // Bytes that this rank has sent to other hosts so far; empty: it is not told, or there are none.
  virtual std::optional<int64_t> bytes_sent() const { return std::nullopt; }

  // One call of the prepared task.
  virtual absl::Status Run(bool in_place) = 0;

  // Blocks until what calls have queued, where they return before that is done, has been done.
  virtual absl::Status Finish() { return absl::OkStatus(); }
};

using Contenders = std::vector<std::unique_ptr<Contender>>;

// `name`: of the library, in reports.
std::unique_ptr<Contender> MakeGyre(Runtime& runtime, std::string name = "gyre");

// Every rank copies from its part of the arena into its part of the arena.
std::unique_ptr<Contender> MakeCopy(Runtime& runtime);

// What memory allows a push allreduce: every rank reduces its slice of all ranks' buffers and stores it to all of them,
// between two barriers. `bytes`: the largest task. kFailedPrecondition where the ranks are on several hosts.
absl::StatusOr<std::unique_ptr<Contender>> MakeBound(Communicator& world, int64_t bytes);

// Gloo over TCP, by each of its algorithms for the operation. kUnimplemented where this build has no Gloo.
absl::StatusOr<Contenders> MakeGloo(Communicator& world, Operation operation);

// An MPI that this process was started under. Owns MPI_Init and MPI_Finalize.
class MpiSession {
 public:
  // kUnimplemented where this build has no MPI; kFailedPrecondition where mpirun did not start us.
  static absl::StatusOr<std::unique_ptr<MpiSession>> Start();
  virtual ~MpiSession() = default;
  virtual std::unique_ptr<Contender> MakeContender() = 0;
  virtual SumInPlace MakeSum() = 0;
};

}  // namespace gyre::bench
