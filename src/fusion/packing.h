// Packing: how those tensors of a part that the program gave in memory of its own come into the part's buffer on a GPU,
// and back: by one kernel that goes by a table, by copies, or by the part's graph, which holds the kernels and what is
// done to the buffer between them.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/gpu.h"
#include "device/gpu_graph.h"
#include "device/tensor_packer.h"
#include "gyre/dtype.h"

namespace gyre::fusion {

// Not thread-safe. Nothing blocks but for a table's copy to the GPU.
class Packing {
 public:
  // Of the buffer of `dtype`; on `stream`, behind which a graph's launches come, and which waits for them. Both outlive
  // it, as `gpu`.
  Packing(device::Gpu& gpu, device::Gpu::Stream stream, void* buffer, DType dtype)
      : gpu_(gpu), buffer_(buffer), dtype_(dtype), packer_(gpu, stream) {}

  // In this step these were given. Which of the three ways they go is decided here: whoever gives new memory in each
  // step goes by copies, for each table would have to be made; and what the graph has in its place changes with it.
  absl::Status Follow(std::vector<device::Segment> segments);

  // The graph, which is launched in this step, packs and unpacks. Gather and Scatter would do it besides.
  bool in_graph() const { return in_graph_; }

  absl::Status Gather();
  absl::Status Scatter();

  // Makes what a capture needs, and captures for a trial what packs and unpacks by itself.
  absl::Status TryCapture(device::Gpu::Stream stream, bool gathers);

  // Begins to capture a graph on `stream`, in which the tensors of the step before are packed if `gathers`; what is
  // queued there until EndCapture comes between that and their way back. There may be nothing to pack: then the graph
  // never does. After an error, again, or DropGraph. REQUIRES: TryCapture was OK, in this step.
  absl::StatusOr<std::shared_ptr<device::GpuGraph>> BeginCapture(device::Gpu::Stream stream, bool gathers);
  absl::Status EndCapture();

  // A capture that is under way ends as well.
  void DropGraph();

  // Null: there is none, or its capture has not ended.
  const std::shared_ptr<device::GpuGraph>& graph() const { return graph_; }

 private:
  device::Gpu& gpu_;
  void* const buffer_;
  const DType dtype_;
  device::TensorPacker packer_;
  bool given_ = false;                           // any were, in this step; packer_ has those that were last
  std::shared_ptr<device::GpuGraph> capturing_;  // on captured_
  device::Gpu::Stream captured_ = nullptr;
  std::shared_ptr<device::GpuGraph> graph_;
  bool packs_ = false;                                      // the graph can
  std::shared_ptr<const device::Gpu::Table> graphs_table_;  // that the graph goes by; null: it leaves packing out
  bool in_graph_ = false;
};

}  // namespace gyre::fusion
