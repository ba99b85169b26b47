// What `gyre-bench gpu kernels` measures: kernels on whole buffers, and the memory that they work on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/gpu.h"
#include "gpu/cuda.h"

namespace gyre::bench::gpu {

struct Case {
  std::string name;
  int64_t bytes = 0;                  // that one run reads and writes, by what it has to
  std::function<absl::Status()> run;  // queues it on the cases' stream
};

// Cases and whatever they use, which lives as long. The Gpu and the stream outlive it.
class Cases {
 public:
  Cases(device::Gpu& gpu, cudaStream_t stream) : gpu_(gpu), stream_(stream) {}

  device::Gpu& gpu() const { return gpu_; }
  cudaStream_t stream() const { return stream_; }
  const std::vector<Case>& all() const { return cases_; }

  void Add(Case what) { cases_.push_back(std::move(what)); }

  // Zeroed memory on the GPU.
  absl::StatusOr<void*> Allocate(int64_t bytes);

  // Keeps what a case uses.
  template <typename T>
  T* Keep(std::unique_ptr<T> what) {
    kept_.push_back(std::shared_ptr<T>(std::move(what)));
    return static_cast<T*>(kept_.back().get());
  }

 private:
  device::Gpu& gpu_;
  cudaStream_t stream_;
  std::vector<Memory> memory_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<Case> cases_;
};

// Pack and unpack of ResNet-50's gradients, each in memory of its own: as they are, and with a cast to bf16.
absl::Status AddPacking(Cases& cases);

// Sums of several buffers, to one and, as allreduces of ranks on one GPU do, back to all.
absl::Status AddReductions(Cases& cases);

absl::Status AddFiniteChecks(Cases& cases);

// Deep gradient compression, a step and its pass alone, of ResNet-50's number of elements and of ten times as many; and
// dense payloads, written and added up.
absl::Status AddCodecs(Cases& cases);

}  // namespace gyre::bench::gpu
