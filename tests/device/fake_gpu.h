// A GPU that is none: its memory is the host's, and the tests' threads do what is queued. It goes by the same tables of
// tiles as the kernels do, element by element.
//
// What is queued is done as late as a GPU may do it: some of it with each look at an event, the rest when somebody
// waits for a stream; streams take turns as a seed says, and only events order them. So who forgets to wait for an
// event, or lets go of memory too early, gets wrong data, or AddressSanitizer's report. Who frees what others have
// open, waits for a GPU that hangs by freeing, or queues something on a stream that the program captures, fails the
// test. The default stream is a stream like the others: it waits for nobody.
#pragma once

#include <bit>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "device/fake_gpu_codecs.h"
#include "device/fake_graph.h"
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
  explicit FakeGpu(unsigned seed = 1, int ordinal = 0)
      : ordinal_(ordinal), place_(AddressOf(this)), queues_(std::make_shared<Queues>(seed)), mutex_(queues_->mutex) {}
  ~FakeGpu() override;

  // Another one beside it: a GPU of its own, but what is queued on either may wait for what is queued on the other, and
  // whoever looks at one of them lets both go on. They stall together.
  std::unique_ptr<FakeGpu> Beside() const;

  // The same, but a slice of this GPU: at its place.
  std::unique_ptr<FakeGpu> Slice() const;

  // From now on nothing that is queued is done, as on a GPU that hangs; or it is again.
  void Stall(bool stalled);

  // The same of one stream alone.
  void Hold(Stream stream, bool held);

  // From now on the program captures the stream into a graph of its own.
  void LetProgramCapture(Stream stream);

  // So many of the later calls of Capture end in the one, and then as many ends of captures in the other: behind
  // `after` of each that end well.
  void FailCaptures(absl::Status begin, absl::Status end, int times, int after = 0);

  // Of the later calls that are captured, the one after so many others ends in this.
  void FailCaptured(int after, absl::Status status);

  // Graphs that were launched, and calls that queued anything but by a graph: to be counted.
  int launched() const;
  int queued() const;

  // What streams wait for until it is opened, by what comes to it on a stream, or at once.
  struct Gate {
    bool open = false;
  };
  absl::Status QueueWait(std::shared_ptr<Gate> gate, Stream stream);
  absl::Status QueueOpen(std::shared_ptr<Gate> gate, Stream stream);
  void Open(Gate& gate);
  bool IsOpen(const Gate& gate) const;

  // As with each look at an event, some of what is queued is done.
  void Look();

  // As what does not say that it waits. Fails the test while work is queued, but for a thread that has waited for all
  // of it, in Free, and queued nothing since; once.
  void FreeAtOnce(void* memory);

  // As cudaDeviceSynchronize: where any stream is being captured into a graph of Capture it is refused, and spoils
  // that.
  absl::Status SynchronizeAll();

  // What the stream is being captured into; null: it is not.
  std::shared_ptr<FakeGraph> CapturedInto(Stream stream) const;

  // How often somebody would have waited without end for what is not done, or 20 s for other GPUs: in Free or
  // Synchronize.
  int blocked() const;

  // Every later AddSquares ends in this.
  void FailSquares(absl::Status status);

  // From now on there is no room for more than so many bytes in one piece.
  void LimitPieces(int64_t bytes) {
    std::lock_guard lock(mutex_);
    largest_piece_ = bytes;
  }

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
  int64_t place() const override { return place_; }
  FakeSharing& sharing() override { return sharing_; }
  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  void Free(void* memory) override;
  absl::StatusOr<Stream> CreateStream() override;
  void DestroyStream(Stream stream) override;
  absl::Status Synchronize(Stream stream) override;
  absl::StatusOr<Event> CreateEvent() override;
  void DestroyEvent(Event event) override;
  absl::Status CheckNotCaptured(Stream stream) override;
  absl::Status Record(Event event, Stream stream) override;
  absl::Status Wait(Stream stream, Event event) override;
  absl::StatusOr<std::shared_ptr<GpuGraph>> Capture(Stream stream) override;
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
  absl::Status AddSquares(ConstTensorView view, double* parts, uint64_t* non_finite, Stream stream) override;
  absl::Status Update(const UpdateRule& rule, std::span<const kernels::Weights> tensors, Stream stream) override;
  GpuCodecs& codecs() override { return codecs_; }

 private:
  friend class FakeGraph;
  friend struct FakeTable;

  // Queued on a stream. Not done before `after`, if there is one, is open. An event has the gate of its latest Record;
  // what waits for that holds it, whatever becomes of the event.
  struct Item {
    std::function<void()> work;
    std::shared_ptr<Gate> after;
  };

  // On all GPUs that are beside one another.
  struct Queues {
    explicit Queues(unsigned seed) : random(seed) {}
    std::mutex mutex;  // guards all that follows
    std::mt19937 random;
    bool stalled = false;
    std::map<Stream, std::deque<Item>> streams;
    std::set<Stream> held, programs;                    // of the latter the program captures
    std::map<Stream, std::weak_ptr<FakeGraph>> graphs;  // that streams are captured into
    std::set<std::thread::id> waited;                   // for all work, and have queued nothing since
  };

  // `whole`: what this is a slice of; null: of nothing.
  FakeGpu(std::shared_ptr<Queues> queues, const FakeGpu* whole)
      : ordinal_(0),
        place_(whole != nullptr ? whole->place_ : AddressOf(this)),
        queues_(std::move(queues)),
        mutex_(queues_->mutex) {}
  static int64_t AddressOf(const FakeGpu* gpu) { return std::bit_cast<int64_t>(gpu); }
  absl::Status Queue(Stream stream, Item item);
  absl::Status QueueNow(Stream stream, Item item);
  absl::Status QueuePack(const PackTable& table, void* buffer, double scale, bool unpacks, Stream stream);
  absl::Status NextCaptured();
  absl::Status BeginLaunch(Stream stream);
  absl::Status EndCapture(Stream stream);
  void Retire(std::shared_ptr<PackTable> table, Stream used_on);
  bool Step();
  void LookLocked();
  bool Busy() const;
  void Await(std::unique_lock<std::mutex>& lock, const std::function<bool()>& busy);

  const int ordinal_;
  const int64_t place_;
  FakeSharing sharing_{*this};
  const std::shared_ptr<Queues> queues_;
  std::mutex& mutex_;  // theirs; guards all that follows
  std::set<Stream> own_;
  absl::Status failure_, squares_failure_, allocate_failure_, pin_failure_;
  absl::Status begin_failure_, end_failure_, captured_failure_;
  int failing_begins_ = 0, failing_ends_ = 0, until_captured_fails_ = -1;
  int begins_before_failure_ = 0, ends_before_failure_ = 0;
  int allocations_before_failure_ = 0;
  int64_t largest_piece_ = std::numeric_limits<int64_t>::max();
  int launched_ = 0, queued_ = 0, blocked_ = 0;
  std::map<Event, std::shared_ptr<Gate>> events_;
  std::map<void*, int64_t> pinned_;
  std::set<void*> allocations_;
  FakeGpuCodecs codecs_{[this](Stream stream, std::function<void()> work) {
    return Queue(stream, {.work = std::move(work), .after = nullptr});
  }};
};

}  // namespace gyre::device
