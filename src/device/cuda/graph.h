// Graphs of CUDA's, and which streams are being captured into them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"
#include "device/cuda/launch.cuh"
#include "device/cuda_context/current.h"
#include "device/gpu_graph.h"
#include "device/hand_over.h"

namespace gyre::device::cuda {

class Captures;

class CudaGraph final : public GpuGraph {
 public:
  // Being captured on `stream`, which `captures` is told the end of.
  CudaGraph(const PrimaryContext& primary, cudaStream_t stream, Captures& captures)
      : primary_(primary), captures_(captures), stream_(stream) {}
  ~CudaGraph() override;

  absl::Status End() override;
  absl::Status Launch(Gpu::Stream stream) override;
  absl::Status Update(const Gpu::Table* table) override;
  void Discard() override;

  // A kernel that packs or unpacks is the last that was queued; its node is yet to be found.
  absl::Status Add(PackNode pack);

 private:
  template <typename Call>
  absl::Status UnlessDiscarded(const Call& call);
  cudaError_t EndCapture();
  void LetGo();

  const PrimaryContext primary_;
  Captures& captures_;
  // A launch waits where a GPU has too much to do already, because others keep it waiting, say; Discard must not wait
  // for that.
  HandOver hand_over_{[this] { LetGo(); }};  // guards all that follows
  cudaStream_t stream_;                      // null: the capture has ended
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t launchable_ = nullptr;  // null: not yet, or no more
  std::vector<PackNode> packs_;
};

// Of one GPU. Thread-safe.
class Captures {
 public:
  explicit Captures(const PrimaryContext& primary) : primary_(primary) {}

  absl::StatusOr<std::shared_ptr<GpuGraph>> Begin(cudaStream_t stream);

  // A pack or unpack kernel was queued on the stream: where that is being captured, its graph is to know.
  absl::Status Note(cudaStream_t stream, const PackNode& pack);

  // The stream's capture has ended.
  void End(cudaStream_t stream);

 private:
  const PrimaryContext primary_;
  std::mutex mutex_;
  std::map<cudaStream_t, std::weak_ptr<CudaGraph>> graphs_;  // by the stream that is being captured; guarded by mutex_
};

}  // namespace gyre::device::cuda
