// A GPU that is none: its memory is the host's, and the tests' threads do what is queued. It goes by the same tables of
// tiles as the kernels do, element by element.
//
// What is queued is done as late as a GPU may do it: some of it with each look at an event, the rest when somebody
// waits for a stream; streams take turns as a seed says, and only events order them. So who forgets to wait for an
// event, or lets go of memory too early, gets wrong data, or AddressSanitizer's report. Who frees what others have
// open, or waits for a GPU that hangs by freeing, fails the test. The default stream is a stream like the others: it
// waits for nobody.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "device/fake_gpu_codecs.h"
#include "device/gpu.h"
#include "device/gpu_sharing.h"

namespace gyre::device {

// Among the threads of a process that have one FakeGpu together: a handle is the thing's address.
class FakeSharing final : public GpuSharing {
 public:
  explicit FakeSharing(Gpu& gpu) : gpu_(gpu) {}

  // From now on nothing can be opened: as where processes do not reach each other's GPU.
  void Refuse(absl::Status status);

  int open() const;  // memories and events that are open
  bool IsOpen(void* thing) const;

  absl::StatusOr<Handle> ExportMemory(void* memory) override { return HandleOf(memory); }
  absl::StatusOr<void*> OpenMemory(const Handle& handle) override { return Open(handle); }
  void CloseMemory(void* opened) override { Close(opened); }
  absl::StatusOr<Gpu::Event> CreateEvent() override { return gpu_.CreateEvent(); }
  absl::StatusOr<Handle> ExportEvent(Gpu::Event event) override { return HandleOf(event); }
  absl::StatusOr<Gpu::Event> OpenEvent(const Handle& handle) override { return Open(handle); }
  void CloseEvent(Gpu::Event opened) override { Close(opened); }

 private:
  static Handle HandleOf(void* thing);
  absl::StatusOr<void*> Open(const Handle& handle);
  void Close(void* opened);

  Gpu& gpu_;
  mutable std::mutex mutex_;
  absl::Status refusal_;       // guarded by mutex_
  std::map<void*, int> open_;  // how often each is; guarded by mutex_
};

class FakeGpu final : public Gpu {
 public:
  explicit FakeGpu(unsigned seed = 1, int ordinal = 0) : ordinal_(ordinal), random_(seed) {}
  ~FakeGpu() override;

  // From now on nothing that is queued is done, as on a GPU that hangs; or it is again.
  void Stall(bool stalled);

  // The same of one stream alone.
  void Hold(Stream stream, bool held);

  // From now on the stream is being captured into a graph.
  void Capture(Stream stream);

  // How often somebody would have waited without end for what is not done: in Free or Synchronize.
  int blocked() const;

  // Every later AddSquares ends in this.
  void FailSquares(absl::Status status);

  // Every later Pin ends in this, or every Allocate but the next `before` ones; OK: no more.
  void FailAllocate(absl::Status status, int before = 0);
  void FailPin(absl::Status status);

  // Every later call that queues something ends in this; OK: no more.
  void Fail(absl::Status status);

  // So many bytes of host memory are pinned, and so many pieces of the GPU's allocated.
  int64_t pinned() const;
  size_t allocations() const;

  std::string name() const override { return "fake"; }
  int ordinal() const override { return ordinal_; }
  std::string uuid() const override;
  FakeSharing& sharing() override { return sharing_; }
  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  void Free(void* memory) override;
  absl::StatusOr<Stream> CreateStream() override;
  void DestroyStream(Stream stream) override;
  absl::Status Synchronize(Stream stream) override;
  absl::StatusOr<Event> CreateEvent() override;
  void DestroyEvent(Event event) override;
  absl::Status Record(Event event, Stream stream) override;
  absl::Status Wait(Stream stream, Event event) override;
  absl::StatusOr<bool> Done(Event event) override;
  absl::Status Pin(void* memory, int64_t bytes) override;
  void Unpin(void* memory) override;
  absl::Status Copy(void* to, const void* from, int64_t bytes, Stream stream) override;
  absl::Status Zero(void* memory, int64_t bytes, Stream stream) override;
  absl::StatusOr<std::unique_ptr<Table>> Upload(PackTable table, Stream used_on) override;
  absl::Status Pack(const Table& table, void* buffer, double scale, Stream stream) override;
  absl::Status Unpack(const Table& table, const void* buffer, double scale, Stream stream) override;
  absl::Status Reduce(const Reduction& reduction, std::span<const void* const> sources,
                      std::span<void* const> destinations, int64_t count, Stream stream) override;
  absl::Status CountNonFinite(ConstTensorView view, uint64_t* found, Stream stream) override;
  absl::Status AddSquares(ConstTensorView view, double* parts, Stream stream) override;
  absl::Status Update(const UpdateRule& rule, std::span<const kernels::Weights> tensors, Stream stream) override;
  GpuCodecs& codecs() override { return codecs_; }

 private:
  // One Record: what waits for it holds it, whatever becomes of its event.
  struct Mark {
    bool reached = false;
  };
  // Queued on a stream. Not done before `after` is reached.
  struct Item {
    std::function<void()> work;
    std::shared_ptr<Mark> after;
  };

  struct TableHere;

  absl::Status Queue(Stream stream, Item item);
  void Retire(std::unique_ptr<PackTable> table, Stream used_on);
  bool Step();
  void Drain(Stream stream);

  const int ordinal_;
  FakeSharing sharing_{*this};
  mutable std::mutex mutex_;  // guards all that follows
  std::mt19937 random_;
  bool stalled_ = false;
  absl::Status failure_, squares_failure_, allocate_failure_, pin_failure_;
  std::set<Stream> held_, captured_;
  int allocations_before_failure_ = 0;
  int blocked_ = 0;
  std::map<Stream, std::deque<Item>> streams_;
  std::map<Event, std::shared_ptr<Mark>> events_;
  std::map<void*, int64_t> pinned_;
  std::set<void*> allocations_;
  FakeGpuCodecs codecs_{[this](Stream stream, std::function<void()> work) {
    return Queue(stream, {.work = std::move(work), .after = nullptr});
  }};
};

}  // namespace gyre::device
