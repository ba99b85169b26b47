// OptimizerOnGpu: what Optimizer is, of weights that are on a GPU, with the state there. One kernel updates many
// tensors. The same weights and gradients give Optimizer's bits, and Save gives the bytes that Optimizer's does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "device/gpu.h"
#include "gyre/optimizer.h"

namespace gyre {

// Not thread-safe. The end waits for the GPU for 2 s at most; memory that it still uses then stays allocated.
class OptimizerOnGpu {
 public:
  // A buffer, and the stream that its weights are used on.
  struct Buffer {
    int64_t count = 0;
    device::Gpu::Stream stream = nullptr;
  };

  // One update of a buffer's weights, of which there are as many as it has elements, or of some rows of them.
  struct Update {
    size_t buffer = 0;
    float* weights = nullptr;
    const float* gradient = nullptr;                              // of all of them, or of the rows; null: zeros
    std::optional<std::span<const int64_t>> rows = std::nullopt;  // in rising order: Optimizer::StepRows
    int64_t width = 0;                                            // elements of a row
  };

  // Waits until the state is there.
  //   kInvalidArgument    as Optimizer::Create
  //   kResourceExhausted  the GPU has not enough memory
  //   kDeadlineExceeded   it had not made the state by `deadline`
  static absl::StatusOr<std::unique_ptr<OptimizerOnGpu>> Create(std::shared_ptr<device::Gpu> gpu,
                                                                const OptimizerConfig& config,
                                                                std::span<const Buffer> buffers, TimePoint deadline);
  ~OptimizerOnGpu();
  OptimizerOnGpu(const OptimizerOnGpu&) = delete;
  OptimizerOnGpu& operator=(const OptimizerOnGpu&) = delete;

  // Queued on the buffers' streams. Rows whose numbers follow each other are a tensor of their own to the kernel: what
  // has many rows takes many launches. REQUIRES: no buffer comes twice; rows are the buffer's.
  absl::Status Step(std::span<const Update> updates);

  absl::Status SetLearningRate(float learning_rate);
  float learning_rate() const;

  // Optimizer's, which say what errors there are besides; they wait for what is queued. kDeadlineExceeded: that was not
  // done by `deadline`; of Restore, the state may have changed then, and after an error of the GPU.
  absl::StatusOr<std::vector<std::byte>> Save(TimePoint deadline);
  absl::Status Restore(std::span<const std::byte> state, TimePoint deadline);

 private:
  struct Slot {
    Buffer buffer;
    int64_t steps = 0;
    size_t begin = 0;  // of its accumulators in the state, one behind the other, in floats
  };

  OptimizerOnGpu(std::shared_ptr<device::Gpu> gpu, const OptimizerConfig& config);
  absl::Status Open(std::span<const Buffer> buffers, TimePoint deadline);
  void AddTo(std::vector<device::kernels::Weights>& tensors, const Slot& slot, const Update& update) const;
  absl::Status Await(TimePoint deadline);
  absl::Status AwaitUses(TimePoint deadline);
  absl::Status Fill(std::vector<float> state, TimePoint deadline);
  std::span<float> Accumulator(std::vector<float>& state, const Slot& slot, int which) const;
  float* Accumulator(const Slot& slot, int which) const;
  size_t Extent(const Slot& slot) const;

  const std::shared_ptr<device::Gpu> gpu_;
  OptimizerConfig config_;
  std::vector<Slot> slots_;
  size_t floats_ = 0;                                       // of the state
  float* state_ = nullptr;                                  // on the GPU
  device::Gpu::Stream stream_ = nullptr;                    // for the state as a whole
  device::Gpu::Event done_ = nullptr;                       // on stream_
  std::map<device::Gpu::Stream, device::Gpu::Event> uses_;  // by buffers' stream: its last update
  std::unique_ptr<std::vector<float>> staging_;             // what is being copied to the GPU
};

}  // namespace gyre
