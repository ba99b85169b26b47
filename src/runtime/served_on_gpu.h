// ServedOnGpu: weights of a ParameterServerClient that are on a GPU, and their gradients. What speaks with the servers
// (ps::Client) works on the host: there it has these weights once more, and gets all gradients. Between the two
// everything is queued on the streams that weights were registered with, and goes through pinned memory.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "device/gpu.h"
#include "device/pinned_memory.h"

namespace gyre::internal {

// Give and GiveZeros may be called for different tensors at once; everything else needs the object to itself. Nothing
// waits for the GPU but what has a deadline, by looking at events, and the end, for what was queued here, 2 s at most.
// Errors, where nothing else is said, are the GPU's, and kFailedPrecondition for a stream that is being captured, on
// which nothing is queued then.
class ServedOnGpu {
 public:
  struct Tensor {
    std::string name{};
    std::span<float> weights{};  // on the GPU
    void* stream = nullptr;
    size_t gradient = 0;  // where its own begins among all gradients on the host
  };

  // Takes memory: on the host also for the gradients of weights that are there, `gradients` floats for all. Gradients
  // on the GPU begin as zeros. `rank`: whose GPU it is, for errors. kResourceExhausted: there is not enough.
  static absl::StatusOr<std::unique_ptr<ServedOnGpu>> Create(std::shared_ptr<device::Gpu> gpu,
                                                             std::vector<Tensor> tensors, size_t gradients, int rank);
  ~ServedOnGpu();
  ServedOnGpu(const ServedOnGpu&) = delete;
  ServedOnGpu& operator=(const ServedOnGpu&) = delete;

  // On the host: a tensor's weights, and all gradients.
  std::span<float> mirror(size_t tensor) const { return slots_[tensor].mirror; }
  std::span<float> gradients() const { return all_gradients_; }

  // On the GPU.
  std::span<float> gradient(size_t tensor) const {
    return {slots_[tensor].gradient, slots_[tensor].tensor.weights.size()};
  }

  // To the host, where all of them are when this returns OK, as is by then what SendWeights has read there.
  //   kDeadlineExceeded  says which one the GPU had not come to; it may be written on the host yet
  absl::Status FetchWeights(TimePoint deadline);
  absl::Status FetchGradients(TimePoint deadline);

  // Mirrors are read by the GPU from here on, until the next Fetch has returned OK.
  absl::Status SendWeights();

  // That nothing is queued on a stream that is being captured.
  absl::Status CheckStreams();

  // `gradient`, which is on the GPU and was written on `stream`, becomes the tensor's, and is read before what is
  // queued there next. REQUIRES: as many elements
  absl::Status Give(size_t tensor, std::span<const float> gradient, void* stream);
  absl::Status GiveZeros(size_t tensor);

 private:
  struct Slot {
    Tensor tensor{};
    std::span<float> mirror{};            // of the weights
    float* host_gradient = nullptr;       // on the host
    float* gradient = nullptr;            // on the GPU
    device::Gpu::Event queued = nullptr;  // the last of what was queued here
  };

  ServedOnGpu(std::shared_ptr<device::Gpu> gpu, std::vector<Tensor> tensors, int rank);
  absl::Status Open(size_t gradients);
  absl::Status Copy(const Slot& slot, float* to, const float* from);
  absl::Status QueueGiven(const Slot& slot, std::span<const float> gradient, void* stream);
  absl::Status Await(std::string_view what, TimePoint deadline);

  const std::shared_ptr<device::Gpu> gpu_;
  std::vector<Slot> slots_;
  const int rank_;
  std::map<void*, std::string> streams_;  // of the tensors, and the name of one of those there
  device::PinnedMemory mirrors_, host_gradients_;
  std::span<float> all_gradients_;
  void* gradients_ = nullptr;           // on the GPU
  device::Gpu::Event probe_ = nullptr;  // of CheckStreams
};

}  // namespace gyre::internal
