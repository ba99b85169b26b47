// GradientsOnGpu: the same for gradients on a GPU. Nothing waits for the GPU but where a number has to come to the host
// (Look): what was given is marked by events, what is done with it is queued on a stream of the object's own behind
// these, and the program's streams wait for that in turn.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "device/gpu.h"
#include "device/gpu_graph.h"
#include "fusion/gradients.h"
#include "fusion/packing.h"

namespace gyre::fusion {

// Thread-safety as of Gradients.
class GradientsOnGpu final : public Gradients {
 public:
  // `memory`: where buckets are to be. `streams`: by tensor, that it is written on where it is given at home, and its
  // result read. kResourceExhausted: the GPU has not enough memory.
  static absl::StatusOr<std::unique_ptr<GradientsOnGpu>> Create(std::shared_ptr<device::Gpu> gpu,
                                                                std::shared_ptr<device::GpuAllocator> memory,
                                                                std::vector<TensorInfo> tensors, const Layout& layout,
                                                                std::vector<void*> streams, int accumulate);
  ~GradientsOnGpu() override;

  // kInvalidArgument for what cannot be given: a view that is elsewhere, or of a dtype that is not converted here.
  absl::Status Check(int tensor, const TensorView& view) const;

  // Where the buckets are, one behind the other.
  const void* begin() const { return memory(); }

  // What is done with buckets is queued on this stream, in the order of Prepare and Deliver.
  Device own() const { return {.gpu = gpu_->ordinal(), .stream = stream_}; }

  TensorView home(int tensor) const override;
  void Give(int tensor) override;
  void Give(int tensor, TensorView view) override;  // REQUIRES: Check was OK
  void GiveZeros(int tensor) override;

  // All of these tensors were given, or are none of this object's, and no other is between its being given and a call
  // of this: what was queued for them is marked, by one event for each stream. Before Prepare of their parts. May be
  // called for different tensors at once.
  void Mark(std::span<const int> tensors);

  absl::Status Prepare(const Part& part) override;
  TensorView BufferOf(const Part& part) const override;
  std::shared_ptr<device::GpuGraph> GraphOf(const Part& part) const override;
  void Deliver(const Part& part) override;

  // --- Graphs: what a part's reduction queues is captured once, between steps, and launched as one from then on ---

  // A capture that has begun: what is to be reduced in place, on the stream that the graph captures.
  struct Capture {
    TensorView buffer;
    std::shared_ptr<device::GpuGraph> graph;
  };

  // Does all of it that may take long or fail for good: what a part's capture needs is there then, and what packs and
  // unpacks was captured for a trial.
  absl::Status TryCapture(const Part& part);

  // Between the two, the part's reduction is queued on the capture's stream. Packing and unpacking are in the graph
  // where the program gave some of the tensors elsewhere in the step before; where they come from elsewhere than then,
  // the graph is told, or does without: they are copied before and after it. One part at a time. Neither waits for
  // anything. After an error, DropGraphs. REQUIRES: TryCapture was OK, in this step.
  absl::StatusOr<Capture> BeginCapture(const Part& part);
  absl::Status EndCapture(const Part& part);

  // From now on no part has a graph, and none is captured. What was queued for a capture that was discarded meanwhile,
  // and so was done, comes before what is queued here from now on.
  void DropGraphs();

  // --- After a step ---

  // What else is to be known of a step's results, once all parts were delivered: the norm of them all, and whether all
  // are finite. Waits for the GPU until `deadline` at most.
  struct Facts {
    double squares = 0;
    bool finite = true;
  };
  absl::StatusOr<Facts> Look(std::span<const Part> parts, TimePoint deadline);

  // All results are multiplied by `scale`, wherever they are.
  absl::Status Scale(std::span<const Part> parts, double scale);

  // From now on all the program's streams that gradients were given on in this step, or are registered on, come after
  // what was queued here, also where a step has failed. The first error of a step's other calls, if there was one.
  absl::Status Finish();

 private:
  GradientsOnGpu(std::shared_ptr<device::Gpu> gpu, std::shared_ptr<device::GpuAllocator> from,
                 std::vector<TensorInfo> tensors, const Layout& layout, std::byte* memory, std::vector<void*> streams,
                 int accumulate);
  absl::Status Open();
  absl::Status Add(int tensor, const TensorView& from, void* stream);
  absl::Status GivenOn(int tensor, void* stream);
  absl::Status WaitForHome(int tensor, void* stream);
  absl::Status AwaitGiven(const Part& part);
  Packing& PackingOf(const Part& part);
  std::vector<device::Segment> SegmentsOf(const Part& part) const;
  absl::Status ComeAfterCaptured();
  absl::Status AwaitOwn(TimePoint deadline);
  absl::StatusOr<uint64_t> CountNonFinite(std::span<const Part> parts, TimePoint deadline);
  void Note(const absl::Status& status);
  void* sum(int tensor) const { return sums_ + layout().begins[static_cast<size_t>(tensor)]; }

  // Where a tensor was given last. The event of the tensor `mark` comes after what was queued there until then.
  struct Given {
    device::Gpu::Event ready = nullptr;
    void* stream = nullptr;
    int mark = 0;
    bool unmarked = false;
  };

  const std::shared_ptr<device::Gpu> gpu_;
  const std::shared_ptr<device::GpuAllocator> from_;  // that the memory is of
  const std::vector<void*> streams_;                  // by tensor
  std::vector<void*> home_streams_;                   // the same, each once
  std::byte* sums_ = nullptr;                         // laid out like the memory; null where nothing is added up
  double* squares_ = nullptr;                         // kSquareParts of them, and behind them a counter
  device::Gpu::Stream stream_ = nullptr;
  device::Gpu::Event done_ = nullptr;               // on stream_
  std::vector<Given> given_;                        // by tensor
  std::vector<int> marks_;                          // of a part's tensors, each once
  std::vector<std::unique_ptr<Packing>> packings_;  // by the part's first tensor; null until it is prepared
  device::Gpu::Stream captured_ = nullptr;          // that parts are captured on; null until the first
  std::mutex mutex_;
  absl::Status failure_;             // guarded by mutex_
  std::vector<void*> step_streams_;  // likewise: those, and the program's that gradients were given on in this step
};

}  // namespace gyre::fusion
