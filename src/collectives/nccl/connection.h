// Connection: one NCCL communicator from its making to its end, and what has been launched on it and is not done yet.
// NCCL waits for ranks that never come, on the host and on the GPU; here everything has a deadline, and whoever finds
// cause aborts it, also from another thread. What of NCCL may block is made on threads of its own (aside.h).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "collectives/lane.h"
#include "collectives/nccl/api.h"
#include "collectives/nccl/aside.h"
#include "device/gpu.h"
#include "device/gpu_graph.h"

namespace gyre::internal::nccl {

// Thread-safe. `api` must outlive it.
class Connection {
 public:
  // Of `rank` of `size`, on `gpu`.
  Connection(Api& api, std::shared_ptr<device::Gpu> gpu, int rank, int size);
  ~Connection();  // ends it, if End did not
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // In order, if within kPatience all that was launched is done and the other ranks end too; else aborts, and leaves an
  // abort behind that takes as long again. Then frees what was kept for it. Nothing but its destruction may follow.
  void End();

  static constexpr Duration kPatience = std::chrono::seconds(2);

  // So many of what was launched may be unfinished. CUDA's own queues are longer, and who comes to their end blocks,
  // and would abort nothing any more.
  static constexpr size_t kMostFlights = 64;

  // Whether Start was called.
  bool started() const;

  // Begins to connect with the other ranks, all with the same id. Once.
  absl::Status Start(const UniqueId& id);

  // True: what was asked for last is done, and the GPU has room for more, so that Launch may be called. Errors: NCCL's,
  // its first one also after the Abort that followed; kFailedPrecondition where it was aborted without one.
  absl::StatusOr<bool> Poll();

  // Whether kMostFlights are what Poll waits for.
  bool full() const;

  // Memory of the GPU's that is freed only when the communicator has ended: to free it waits for the GPU, whose kernels
  // may wait for an Abort.
  void Keep(void* memory);

  // Where its watches are queued.
  Lane& lane() { return lane_; }

  // Queues the group on stream(); Poll tells when it has been.
  absl::Status Launch(std::span<const Transfer> group);

  // Adds the group to the graph, which captures `stream`; Poll tells when it has been. All ranks do, in one order with
  // what they launch; and all launch the graph, or none does. From now on the graph is discarded when this ends, in
  // whatever way: NCCL waits for graphs that hold its calls, with an abort too.
  absl::Status Capture(std::span<const Transfer> group, const std::shared_ptr<device::GpuGraph>& graph,
                       device::Gpu::Stream stream);

  // Queues a graph of Capture on stream().
  absl::Status Launch(device::GpuGraph& graph);

  // The memory, of Api::Allocate, is registered from now on, if it is not yet (Comm::Register). REQUIRES: Poll said
  // true.
  absl::Status Register(void* memory, int64_t bytes);
  bool HasRegistered(const void* memory) const;

  // The memory, which nothing uses any more, is about to go. Blocks while something is being launched, and while NCCL
  // asks other ranks, until `limit` at most; false: it may be registered still, and stays so.
  bool Forget(const void* memory, TimePoint limit);

  // Where everything runs, in one order.
  device::Gpu::Stream stream() const { return stream_; }

  // What is queued on stream() so far is to be done by `deadline`. `what` it is, for messages. The event that marks it
  // is valid until the next Watch.
  absl::StatusOr<device::Gpu::Event> Watch(TimePoint deadline, std::string what);

  // How many watched things are not done. An error: NCCL's own, found since; or the GPU's.
  absl::StatusOr<size_t> Unfinished();

  // The first watched thing whose time is up, if there is one; and when the next one's will be.
  std::optional<std::string> Late(TimePoint now) const;
  TimePoint NextDeadline() const;

  // Gives up what is under way, here and on the GPU: kernels of NCCL's that wait for others end soon. NCCL may be at it
  // for longer, aside. Blocks only amid a capture, for kThrough at most: NCCL's thread adds to the graph, which is to
  // be discarded. Idempotent.
  void Abort();
  bool aborted() const;

  static constexpr Duration kThrough = std::chrono::milliseconds(200);

 private:
  enum class State { kNew, kBusy, kReady, kForgetting, kAborted };
  struct Flight {
    device::Gpu::Event event;
    TimePoint deadline;
    std::string what;
  };

  absl::Status LaunchLocked(std::span<const Transfer> group, device::Gpu::Stream stream);
  absl::Status LaunchNow(std::span<const Transfer> group, device::Gpu::Stream stream);
  absl::Status RegisterNow(void* memory, int64_t bytes);
  absl::Status CheckReadyLocked() const;
  absl::Status TakeUpLocked();
  void DiscardGraphsLocked();
  absl::StatusOr<bool> PollLocked();
  absl::StatusOr<bool> AskLocked();
  absl::Status WhyAbortedLocked() const;
  absl::Status SettleLocked();
  absl::StatusOr<size_t> UnfinishedLocked();
  void AbortLocked();
  void LeaveLocked(bool aborts);
  bool GoneLocked() const;
  void AwaitAsides(TimePoint limit) const;
  std::shared_ptr<Aside> BeginToForget(const void* memory);
  absl::StatusOr<bool> BeginToFinalize();
  bool EndInOrder(TimePoint patience);

  Api& api_;
  const std::shared_ptr<device::Gpu> gpu_;
  const int rank_, size_;
  Lane lane_;
  device::Gpu::Stream stream_ = nullptr;

  mutable std::mutex mutex_;  // for all that follows
  State state_ = State::kNew;
  std::shared_ptr<Comm> comm_;                        // of who calls it aside as well; null: none yet, or no more
  std::shared_ptr<Aside> forgetting_;                 // the latest
  std::vector<std::function<absl::Status()>> later_;  // what was asked for meanwhile
  std::shared_ptr<Aside> leaving_;                    // once it is aborted, or ends in order
  bool capturing_ = false;                            // what it is busy with
  absl::Status failure_;                              // NCCL's first
  std::deque<Flight> flights_;
  std::vector<std::weak_ptr<device::GpuGraph>> graphs_;  // that hold calls of comm_
  std::map<const void*, void*> registered_;              // NCCL's handles, by memory
  std::vector<device::Gpu::Event> spare_events_;
  std::vector<void*> kept_;
  bool ended_ = false;
};

}  // namespace gyre::internal::nccl
