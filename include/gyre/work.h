// Work: the handle of an asynchronous operation.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "gyre/export.h"

namespace gyre {

namespace internal {
class Conductor;
class NamedMarks;
class Pollable;
class Progress;
}  // namespace internal

// Copies refer to the same operation. Letting go of a handle does not cancel: the operation's buffers must stay alive
// until it has ended. Thread-safe. Wait may be called before, during or after the runtime's shutdown.
//
// Of a named operation on GPUs, the first Done that is true, or Wait, has the tensors' streams wait for it
// (named_operations.h): call them where the program queues on these, not on a thread that only watches. That blocks as
// queuing does: where CUDA's queue of a stream is full.
class [[nodiscard]] GYRE_EXPORT Work {
 public:
  Work() = default;  // a finished operation with an OK status

  // True once the operation has ended. Never blocks, but for what is said above.
  bool Done() const;

  // Blocks until the operation has ended and returns its status; helps to do the work meanwhile. Returns by the
  // operation's deadline.
  absl::Status Wait();

 private:
  friend class Communicator;
  friend class internal::Conductor;
  Work(std::shared_ptr<internal::Pollable> operation, std::shared_ptr<internal::Progress> progress,
       std::shared_ptr<internal::NamedMarks> marks = nullptr)
      : operation_(std::move(operation)), progress_(std::move(progress)), marks_(std::move(marks)) {}

  std::shared_ptr<internal::Pollable> operation_;
  std::shared_ptr<internal::Progress> progress_;
  std::shared_ptr<internal::NamedMarks> marks_;  // of tensors on a GPU, where their streams are to wait for it yet
};

}  // namespace gyre
