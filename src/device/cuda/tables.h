// Pack tables on a GPU. They are made on a stream of their own, so that nobody who makes one waits for what a program
// has queued; and they go behind their last use, for which nobody waits either.
#pragma once

#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"
#include "device/cuda/launch.cuh"
#include "device/cuda_context/current.h"
#include "device/gpu.h"

namespace gyre::device::cuda {

// Thread-safe.
class Tables {
 public:
  explicit Tables(const PrimaryContext& primary) : primary_(primary) {}
  ~Tables();
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  absl::StatusOr<std::unique_ptr<Gpu::Table>> Upload(PackTable table, Gpu::Stream used_on);

  // REQUIRES: one of Upload.
  static Tiles TilesOf(const Gpu::Table& table);

 private:
  absl::Status Open();

  const PrimaryContext primary_;
  std::mutex mutex_;
  cudaMemPool_t pool_ = nullptr;   // guarded by mutex_
  cudaStream_t stream_ = nullptr;  // likewise; null until the first table
};

}  // namespace gyre::device::cuda
