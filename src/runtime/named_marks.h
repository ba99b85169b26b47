// NamedMarks: the place of operations by name in the order of the program's streams on a GPU.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "device/gpu.h"

namespace gyre::internal {

// Of an operation, or of a group of them, which has one event for each stream that its tensors are on. Add, then
// Begin and End, which may come several times, of one thread at a time; Arrive after them all.
class NamedMarks {
 public:
  explicit NamedMarks(std::shared_ptr<device::Gpu> gpu) : gpu_(std::move(gpu)) {}
  ~NamedMarks();
  NamedMarks(const NamedMarks&) = delete;
  NamedMarks& operator=(const NamedMarks&) = delete;

  const std::shared_ptr<device::Gpu>& gpu() const { return gpu_; }

  // What is queued on this stream by now comes before the operations.
  absl::Status Add(device::Gpu::Stream stream);

  // What is queued on `own` from now on comes after what Add found on any of the streams.
  absl::Status Begin(device::Gpu::Stream own);

  // What is queued on `own` by now is to come before what the program queues after Arrive. REQUIRES: Begin was called
  absl::Status End(device::Gpu::Stream own);

  // What the program queues on its streams from now on comes after what the last End found, if there was one. Does
  // something once for each stream. Thread-safe.
  //   kFailedPrecondition  streams are being captured into graphs, and are yet to be dealt with: call it again later
  //   kInternal            the GPU fails; the same from then on, and nothing more is done
  absl::Status Arrive();

 private:
  struct Mark {
    device::Gpu::Stream stream = nullptr;
    device::Gpu::Event event = nullptr;
    bool arrived = false;  // guarded by mutex_
  };

  const std::shared_ptr<device::Gpu> gpu_;
  std::vector<Mark> marks_;  // no stream twice
  bool begun_ = false;
  bool ended_ = false;  // the first event is on the stream of End since
  std::mutex mutex_;
  absl::Status failure_{};  // of Arrive; guarded by mutex_
};

}  // namespace gyre::internal
