#include "device/cuda/graph.h"

#include <utility>

#include "device/cuda/call.h"
#include "device/cuda/tables.h"
#include "gyre/status_macros.h"

namespace gyre::device::cuda {

namespace {

// The node of a stream that is being captured behind which the next one comes. CUDA 13 has one function for it, CUDA 12
// one of the same name for something less: hence the template, of which only what there is gets compiled.
template <typename Stream>
cudaError_t LastNode(Stream stream, cudaGraphNode_t* node) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* nodes = nullptr;
  size_t count = 0;
  cudaError_t error = cudaSuccess;
  if constexpr (requires { cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, nullptr, &count); }) {
    error = cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, nullptr, &count);
  } else {
    error = cudaStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &nodes, &count);
  }
  if (error != cudaSuccess) return error;
  if (status != cudaStreamCaptureStatusActive) return cudaErrorStreamCaptureInvalidated;
  if (count != 1) return cudaErrorUnknown;
  *node = nodes[0];
  return cudaSuccess;
}

absl::Status NotThere() {
  return absl::FailedPreconditionError("the graph's capture has not ended well, or it was discarded");
}

}  // namespace

CudaGraph::~CudaGraph() {
  hand_over_.Discard();
}

cudaError_t CudaGraph::EndCapture() {
  captures_.End(stream_);
  return cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph_);
}

template <typename Call>
absl::Status CudaGraph::UnlessDiscarded(const Call& call) {
  absl::Status status = NotThere();
  hand_over_.Use([&] { status = call(); });
  return status;
}

void CudaGraph::Discard() {
  hand_over_.Discard();
}

absl::Status CudaGraph::End() {
  return UnlessDiscarded([&] {
    if (stream_ == nullptr) return NotThere();
    absl::Status status = On(
        primary_,
        [&] {
          const cudaError_t error = EndCapture();
          return error == cudaSuccess ? cudaGraphInstantiate(&launchable_, graph_, 0) : error;
        },
        "capturing a stream into a graph");
    if (!status.ok()) LetGo();
    return status;
  });
}

absl::Status CudaGraph::Launch(Gpu::Stream stream) {
  return UnlessDiscarded([&] {
    if (launchable_ == nullptr) return NotThere();
    return On(
        primary_, [&] { return cudaGraphLaunch(launchable_, AsCuda(stream)); }, "launching a graph");
  });
}

absl::Status CudaGraph::Update(const Gpu::Table* table) {
  const Tiles tiles = table != nullptr ? Tables::TilesOf(*table) : Tiles{};
  const auto update = [&](const PackNode& pack) {
    const cudaError_t error = tiles.tile_count > 0 ? SetTiles(launchable_, pack, tiles) : cudaSuccess;
    if (error != cudaSuccess) return error;
    return cudaGraphNodeSetEnabled(launchable_, pack.node, tiles.tile_count > 0 ? 1 : 0);
  };
  return UnlessDiscarded([&] {
    if (launchable_ == nullptr) return NotThere();
    for (const PackNode& pack : packs_) {
      RETURN_IF_ERROR(On(
          primary_, [&] { return update(pack); }, "updating a graph"));
    }
    return absl::OkStatus();
  });
}

// What is being done CUDA keeps until it has been done.
void CudaGraph::LetGo() {
  GiveBack(primary_, [&] {
    if (stream_ != nullptr) EndCapture();
    if (launchable_ != nullptr) cudaGraphExecDestroy(std::exchange(launchable_, nullptr));
    if (graph_ != nullptr) cudaGraphDestroy(std::exchange(graph_, nullptr));
    cudaGetLastError();  // of a capture that something has spoilt
  });
  packs_.clear();
}

absl::Status CudaGraph::Add(PackNode pack) {
  return UnlessDiscarded([&] {
    if (stream_ == nullptr) return NotThere();
    RETURN_IF_ERROR(On(
        primary_, [&] { return LastNode(stream_, &pack.node); }, "looking for a node of a graph"));
    packs_.push_back(pack);
    return absl::OkStatus();
  });
}

// Relaxed: neither this thread nor others are kept from calls that might be unsafe meanwhile, and any thread may end
// it. What they are kept from in any mode is to wait for the whole GPU, or its context, which spoils the capture. The
// program's own captures are not touched, for the stream is none of its.
absl::StatusOr<std::shared_ptr<GpuGraph>> Captures::Begin(cudaStream_t stream) {
  RETURN_IF_ERROR(On(
      primary_, [&] { return cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed); },
      "beginning to capture a stream"));
  auto graph = std::make_shared<CudaGraph>(primary_, stream, *this);
  std::lock_guard lock(mutex_);
  graphs_[stream] = graph;
  return graph;
}

absl::Status Captures::Note(cudaStream_t stream, const PackNode& pack) {
  std::shared_ptr<CudaGraph> graph;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = graphs_.find(stream); found != graphs_.end()) graph = found->second.lock();
  }
  return graph == nullptr ? absl::OkStatus() : graph->Add(pack);
}

void Captures::End(cudaStream_t stream) {
  std::lock_guard lock(mutex_);
  graphs_.erase(stream);
}

}  // namespace gyre::device::cuda
