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
#include "device/tensor_packer.h"
#include "fusion/gradients.h"

namespace gyre::fusion {

// Thread-safety as of Gradients.
class GradientsOnGpu final : public Gradients {
 public:
  // `streams`: by tensor, that it is written on where it is given at home, and its result read.
  // kResourceExhausted: the GPU has not enough memory.
  static absl::StatusOr<std::unique_ptr<GradientsOnGpu>> Create(std::shared_ptr<device::Gpu> gpu,
                                                                std::vector<TensorInfo> tensors, const Layout& layout,
                                                                std::vector<void*> streams, int accumulate);
  ~GradientsOnGpu() override;

  // kInvalidArgument for what cannot be given: a view that is elsewhere, or of a dtype that is not converted here.
  absl::Status Check(int tensor, const TensorView& view) const;

  // What is done with buckets is queued on this stream, in the order of Prepare and Deliver.
  Device own() const { return {.gpu = gpu_->ordinal(), .stream = stream_}; }

  TensorView home(int tensor) const override;
  void Give(int tensor) override;
  void Give(int tensor, TensorView view) override;  // REQUIRES: Check was OK
  void GiveZeros(int tensor) override;
  absl::Status Prepare(const Part& part) override;
  TensorView BufferOf(const Part& part) const override;
  void Deliver(const Part& part) override;

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
  GradientsOnGpu(std::shared_ptr<device::Gpu> gpu, std::vector<TensorInfo> tensors, const Layout& layout,
                 std::byte* memory, std::vector<void*> streams, int accumulate);
  absl::Status Open();
  absl::Status Add(int tensor, const TensorView& from, void* stream);
  absl::Status Mark(int tensor, void* stream);
  absl::Status WaitForHome(int tensor, void* stream);
  std::vector<device::Segment> SegmentsOf(const Part& part) const;
  device::TensorPacker& PackerOf(const Part& part);
  absl::Status Gather(const Part& part);
  absl::Status Scatter(const Part& part);
  absl::Status AwaitOwn(TimePoint deadline);
  absl::StatusOr<uint64_t> CountNonFinite(std::span<const Part> parts, TimePoint deadline);
  void Note(const absl::Status& status);
  void* sum(int tensor) const { return sums_ + layout().begins[static_cast<size_t>(tensor)]; }

  const std::shared_ptr<device::Gpu> gpu_;
  const std::vector<void*> streams_;  // by tensor
  std::vector<void*> home_streams_;   // the same, each once
  std::byte* sums_ = nullptr;         // laid out like the memory; null where nothing is added up
  double* squares_ = nullptr;         // kSquareParts of them, and behind them a counter
  device::Gpu::Stream stream_ = nullptr;
  device::Gpu::Event done_ = nullptr;                           // on stream_
  std::vector<device::Gpu::Event> given_events_;                // by tensor
  std::vector<std::unique_ptr<device::TensorPacker>> packers_;  // by the part's first tensor
  std::mutex mutex_;
  absl::Status failure_;             // guarded by mutex_
  std::vector<void*> step_streams_;  // likewise: those, and the program's that gradients were given on in this step
};

}  // namespace gyre::fusion
