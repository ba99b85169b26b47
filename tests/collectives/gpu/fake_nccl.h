// NCCL as the tests have it: the ranks' communicators meet in a FakeClique, and what they launch is done on their one
// FakeGpu, behind the streams that it was launched on. A launch is under way until all ranks have launched theirs.
//
// As NCCL's, a launch is captured on all ranks or on none, and what was captured is launched again by all, in one order
// with everything else; the rest of a rank's stream waits until all have come, or the rank aborts. Who ends a
// communicator, in whatever way, while a graph holds calls of it fails the test: NCCL would wait without end. So does
// who lets a graph go while NCCL adds to it, launches with memory that some ranks have registered and others have not,
// or elsewhere in it, frees memory that is registered, or that the GPU may use, or deregisters such.
//
// An abort returns only once the GPU is through with the rank's graphs.
#pragma once

#include <atomic>
#include <climits>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/nccl/api.h"
#include "device/fake_gpu.h"

namespace gyre {

class FakeComm;

// What goes wrong is said here; all of it may be from any thread.
class FakeNccl final : public internal::nccl::Api {
 public:
  explicit FakeNccl(device::FakeGpu& gpu) : gpu_(gpu) {}
  ~FakeNccl() override;

  std::atomic<bool> refuses_ids{false};        // MakeId fails
  std::atomic<bool> never_connects{false};     // Init's end does not come
  std::atomic<bool> never_launches{false};     // nor a launch's
  std::atomic<bool> never_deregisters{false};  // nor that of letting memory go, but with an abort
  std::atomic<int> looks_at_captures{0};       // that say that they go on, once all ranks have come
  std::atomic<int> allocations_left{INT_MAX};  // then Allocate fails

  // From now on every Poll of rank's communicators finds this.
  void Break(int rank, absl::Status status);

  // Of communicators, all ranks' together; and launches of what was captured.
  std::atomic<int> made{0}, launches{0}, aborted{0}, finalized{0}, alive{0}, replays{0};
  std::atomic<int> aborting{0};                      // aborts that have yet to return
  std::atomic<int> registrations{0}, registered{0};  // that there ever were, and that there are

  // Wait for `aborted` and `alive`, 10 s at most: aborts and ends are other threads'.
  bool AbortsBecome(int count) const;
  bool AliveBecome(int count) const;

  // Pieces of memory that were not freed.
  size_t pieces() const;

  int version() const override { return 1; }
  absl::StatusOr<void*> Allocate(int gpu, int64_t bytes) override;
  void Free(int gpu, void* memory) override;
  absl::StatusOr<internal::nccl::UniqueId> MakeId() override;
  absl::StatusOr<std::unique_ptr<internal::nccl::Comm>> Init(const internal::nccl::UniqueId& id, int rank, int size,
                                                             int gpu) override;

 private:
  friend class FakeComm;

  using Gate = device::FakeGpu::Gate;

  struct Launch {
    std::vector<internal::nccl::Transfer> group;
    device::Gpu::Stream stream = nullptr;
    bool captured = false;
  };

  // A launch that all ranks have captured, and each time that they launch it.
  struct Captured {
    // By rank, as far as they have come.
    struct Round {
      std::vector<std::shared_ptr<Gate>> arrived, done;
      int count = 0;
    };
    explicit Captured(int64_t which) : number(which) {}
    const int64_t number;
    std::vector<Launch> launches;  // by rank
    std::vector<int> rounds_of;    // by rank: how many it has launched
    std::vector<Round> rounds;
  };

  // One communicator, as all its ranks make it.
  struct Clique {
    explicit Clique(int size)
        : comms(static_cast<size_t>(size)),
          ended(static_cast<size_t>(size)),
          orders(static_cast<size_t>(size)),
          replays_end(static_cast<size_t>(size)) {}
    std::vector<FakeComm*> comms;  // null: not there yet, or gone
    std::vector<bool> ended;
    bool broken = false;                              // a rank has aborted
    std::map<int64_t, std::vector<Launch>> launches;  // by number: by rank
    std::map<int64_t, int> launched;
    int64_t done = 0;                                       // launches
    std::map<int64_t, std::shared_ptr<Captured>> captured;  // by number
    std::vector<std::vector<int64_t>> orders;  // by rank: the launches' numbers, or of what was captured the negative
    std::vector<std::shared_ptr<Gate>> replays_end;  // by rank: open once the GPU is through with its graphs
  };

  static void NoteOrder(Clique& clique, int rank, int64_t what);
  absl::Status Replay(Clique& clique, Captured& captured, int rank, device::Gpu::Stream stream);
  void Execute(Clique& clique, const std::vector<Launch>& launches);
  absl::Status QueueEnd(const Clique& clique, int rank, const std::vector<internal::nccl::Transfer>& group,
                        device::Gpu::Stream stream, std::shared_ptr<Gate> end);
  bool Passed(const std::shared_ptr<Gate>& gate) const;
  void Pause(std::unique_lock<std::mutex>& lock);
  void Do(const std::vector<Launch>& launches, device::Gpu::Stream stream);
  void DoOne(const std::vector<const internal::nccl::Transfer*>& transfers, device::Gpu::Stream stream);
  void Reduce(const std::vector<const internal::nccl::Transfer*>& transfers, device::Gpu::Stream stream);
  void Match(const std::vector<Launch>& launches, device::Gpu::Stream stream);
  void Copy(void* to, const void* from, int64_t bytes, device::Gpu::Stream stream);

  void ExpectSameMemory(const Clique& clique, const std::vector<Launch>& launches) const;

  device::FakeGpu& gpu_;
  std::atomic<bool> ending_{false};
  mutable std::mutex mutex_;  // guards all that follows
  int64_t ids_ = 0;
  std::map<internal::nccl::UniqueId, std::shared_ptr<Clique>> cliques_;
  std::map<int, absl::Status> broken_;
  std::map<const void*, int64_t> pieces_;     // bytes by begin
  std::vector<device::Gpu::Stream> streams_;  // of what was launched
};

}  // namespace gyre
