// NCCL as the tests have it: the ranks' communicators meet in a FakeClique, and what they launch is done on their one
// FakeGpu, behind the streams that it was launched on. A launch is under way until all ranks have launched theirs.
#pragma once

#include <atomic>
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

  std::atomic<bool> refuses_ids{false};     // MakeId fails
  std::atomic<bool> never_connects{false};  // Init's end does not come
  std::atomic<bool> never_launches{false};  // nor a launch's

  // From now on every Poll of rank's communicators finds this.
  void Break(int rank, absl::Status status);

  // Of communicators, all ranks' together.
  std::atomic<int> made{0}, launches{0}, aborted{0}, finalized{0}, alive{0};

  int version() const override { return 1; }
  absl::StatusOr<internal::nccl::UniqueId> MakeId() override;
  absl::StatusOr<std::unique_ptr<internal::nccl::Comm>> Init(const internal::nccl::UniqueId& id, int rank, int size,
                                                             int gpu) override;

 private:
  friend class FakeComm;

  // One communicator, as all its ranks make it.
  struct Clique {
    explicit Clique(int size) : comms(static_cast<size_t>(size)), ended(static_cast<size_t>(size)) {}
    struct Launch {
      std::vector<internal::nccl::Transfer> group;
      device::Gpu::Stream stream = nullptr;
    };
    std::vector<FakeComm*> comms;  // null: not there yet, or gone
    std::vector<bool> ended;
    std::map<int64_t, std::vector<Launch>> launches;  // by number: by rank
    std::map<int64_t, int> launched;
    int64_t done = 0;  // launches
  };

  void Execute(const std::vector<Clique::Launch>& launches);
  void Do(const std::vector<const internal::nccl::Transfer*>& transfers, device::Gpu::Stream stream);
  void Reduce(const std::vector<const internal::nccl::Transfer*>& transfers, device::Gpu::Stream stream);
  void Match(const std::vector<Clique::Launch>& launches, device::Gpu::Stream stream);
  void Copy(void* to, const void* from, int64_t bytes, device::Gpu::Stream stream);

  device::FakeGpu& gpu_;
  std::mutex mutex_;  // guards all that follows
  int64_t ids_ = 0;
  std::map<internal::nccl::UniqueId, std::shared_ptr<Clique>> cliques_;
  std::map<int, absl::Status> broken_;
  std::vector<device::Gpu::Stream> streams_;  // of what was launched
};

}  // namespace gyre
