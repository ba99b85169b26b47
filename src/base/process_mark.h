// ProcessMark: tells the process that made an object from the children that it forked afterwards, which have copies of
// that object but none of the threads behind it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"

namespace gyre {

// Thread-safe.
class ProcessMark {
 public:
  ProcessMark();
  ~ProcessMark();
  ProcessMark(const ProcessMark&) = delete;
  ProcessMark& operator=(const ProcessMark&) = delete;

  // Whether this is a child that was forked after the mark was made. Costs one load: the kernel clears the mark in
  // children. Where it cannot (before Linux 4.14, or without room for a page), costs a system call.
  bool forked() const { return page_ != nullptr ? page_->load(std::memory_order_relaxed) == 0 : HasAnotherNumber(); }

  // OK in the process that made the mark. kFailedPrecondition in a forked child: names both, and says what to do.
  absl::Status Check() const {
    if (!forked()) [[likely]]
      return absl::OkStatus();
    return Refusal();
  }

 private:
  bool HasAnotherNumber() const;
  absl::Status Refusal() const;

  const pid_t process_;
  const std::atomic<uint32_t>* page_ = nullptr;  // holds 1, in children 0; null: none was to be had
};

// For destructors in a forked child: what `object` refers to stays until the child ends, and its destructor never runs.
// That would wait for threads and locks that the fork has left behind, and change what is still the parent's: sockets,
// epoll sets, shared memory, files.
void KeepUntilExit(std::shared_ptr<void> object);

}  // namespace gyre
