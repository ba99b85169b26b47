// The GPUs of this process as its runtime knows them: opened at the first tensor that is on one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/nccl/factory.h"
#include "collectives/staged/factory.h"
#include "device/gpu.h"
#include "device/gpu_allocator.h"
#include "gyre/tensor.h"
#include "transport/shm/arena.h"

namespace gyre {
class Communicator;
class Runtime;
}  // namespace gyre

namespace gyre::internal {

// "GPU 1", or "the host".
std::string NameOfDevice(const Device& device);

// One of them, and what goes with it.
struct OpenedGpu {
  std::shared_ptr<device::Gpu> gpu;
  std::shared_ptr<staged::Rings> rings;
  std::shared_ptr<device::GpuAllocator> memory;  // where tensors' memory comes from: NCCL, if it is there, or the GPU
  std::shared_ptr<nccl::Memory> nccl_memory;     // the same; null: the GPU
};

// A piece of the memory, freed with the last reference: GpuAllocator::Allocate.
absl::StatusOr<std::shared_ptr<void>> AllocateOn(const std::shared_ptr<device::GpuAllocator>& memory, int64_t bytes);

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

  // That data pass through; and how many ranks the job has, for one alone has no use for NCCL. Before all else.
  void StageIn(std::shared_ptr<Arena> arena, int ranks) {
    arena_ = std::move(arena);
    ranks_ = ranks;
  }

  // For tests: other GPUs than CUDA's, with an NCCL of their own or none, slots of other sizes, and memory of NCCL's
  // for what has so many bytes or more. Before the first tensor.
  static Gpus& Of(Communicator& communicator);
  void OpenBy(Open open, nccl::Api* nccl = nullptr) {
    open_ = std::move(open);
    nccl_ = nccl;
    by_cuda_ = false;
  }
  void StageBy(const staged::Sizes& sizes) { sizes_ = sizes; }
  void RegisterFrom(int64_t bytes) { registered_from_ = bytes; }

  // Opens it if this is the first time, which may take some 100 ms.
  //   kUnimplemented    this build, or this machine, has no libgyre_cuda
  //   kUnavailable      CUDA cannot be used
  //   kInvalidArgument  there is no such GPU
  absl::StatusOr<OpenedGpu> Get(int ordinal);

  // One reducer has graphs of a GPU at a time: from here on until it lets go of what it is given. Null: another has.
  std::shared_ptr<void> TakeTurnOfGraphs(int ordinal);

  // Null: there is none for these GPUs.
  nccl::Api* nccl();

  // Why there is none where CUDA's GPUs might have it.
  absl::Status WhyNoNccl() const { return by_cuda_ ? nccl::LoadApi().status() : absl::OkStatus(); }

  // False if it was asked before: what several communicators find out is told once.
  bool IsNews(const std::string& text);

 private:
  Open open_;
  bool by_cuda_ = true;
  nccl::Api* nccl_ = nullptr;  // where it is not by CUDA
  std::shared_ptr<Arena> arena_;
  int ranks_ = 1;
  staged::Sizes sizes_;
  int64_t registered_from_ = 1 << 20;  // NCCL gives 2 MiB for less
  std::mutex mutex_;
  std::map<int, OpenedGpu> opened_;                 // by ordinal; guarded by mutex_
  std::map<int, std::weak_ptr<void>> graph_turns_;  // likewise
  std::mutex told_mutex_;                           // not for as long as opening a GPU takes
  std::set<std::string> told_;                      // guarded by told_mutex_
};

}  // namespace gyre::internal
