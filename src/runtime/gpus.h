// The GPUs of this process as its runtime knows them: opened at the first tensor that is on one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "collectives/nccl/factory.h"
#include "collectives/staged/factory.h"
#include "device/gpu.h"
#include "transport/shm/arena.h"

namespace gyre {
class Communicator;
class Runtime;
}  // namespace gyre

namespace gyre::internal {

// One of them, and what goes with it.
struct OpenedGpu {
  std::shared_ptr<device::Gpu> gpu;
  std::shared_ptr<staged::Rings> rings;
};

// A piece of the GPU's memory, freed with the last reference: Gpu::Allocate.
absl::StatusOr<std::shared_ptr<void>> AllocateOn(const std::shared_ptr<device::Gpu>& gpu, int64_t bytes);

// A piece, and what it took the place of, which goes with it: to free memory may wait, and who outgrows it may not.
struct GpuMemory {
  std::shared_ptr<void> piece;
  int64_t bytes = 0;
  std::shared_ptr<GpuMemory> outgrown;
};

// Thread-safe.
class Gpus {
 public:
  using Open = std::function<absl::StatusOr<std::shared_ptr<device::Gpu>>(int ordinal)>;

  // By CUDA.
  Gpus();

  // That data pass through. Before all else.
  void StageIn(std::shared_ptr<Arena> arena) { arena_ = std::move(arena); }

  // For tests: other GPUs than CUDA's, with what is NCCL there, if anything, and slots of other sizes. Before the first
  // tensor.
  static Gpus& Of(Communicator& communicator);
  void OpenBy(Open open, nccl::Api* nccl = nullptr) {
    open_ = std::move(open);
    by_cuda_ = false;
    nccl_ = nccl;
  }
  void StageBy(const staged::Sizes& sizes) { sizes_ = sizes; }

  // Opens it if this is the first time, which may take some 100 ms.
  //   kUnimplemented    this build, or this machine, has no libgyre_cuda
  //   kUnavailable      CUDA cannot be used
  //   kInvalidArgument  there is no such GPU
  absl::StatusOr<OpenedGpu> Get(int ordinal);

  // Null: there is none for these GPUs.
  nccl::Api* nccl();

 private:
  Open open_;
  bool by_cuda_ = true;
  nccl::Api* nccl_ = nullptr;  // without CUDA
  std::shared_ptr<Arena> arena_;
  staged::Sizes sizes_;
  std::mutex mutex_;
  std::map<int, OpenedGpu> opened_;  // by ordinal; guarded by mutex_
};

}  // namespace gyre::internal
