// NamedGpu: what named operations of tensors on a GPU need there. Their calls are made on a stream of its own, behind
// what the program had queued when it submitted them: what it queues from then on, the rest of a backward pass perhaps,
// is not waited for, and does not wait, before the program itself waits (NamedMarks). Groups travel in a buffer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/gpu.h"
#include "device/tensor_packer.h"
#include "fusion/negotiator.h"
#include "gyre/tensor.h"

namespace gyre::internal {

struct NamedBuffers;

// What a call reads and writes.
struct NamedTensors {
  ConstTensorView in{};
  TensorView out{};
};

// One step at a time: Enter or EnterGather, the call, Leave. Not thread-safe. Nothing waits for the GPU but the end, 2
// s at most; memory that the GPU still uses then stays allocated.
class NamedGpu {
 public:
  static absl::StatusOr<std::unique_ptr<NamedGpu>> Open(std::shared_ptr<device::Gpu> gpu);
  ~NamedGpu();
  NamedGpu(const NamedGpu&) = delete;
  NamedGpu& operator=(const NamedGpu&) = delete;

  const std::shared_ptr<device::Gpu>& gpu() const { return gpu_; }

  // The tensors of the step's call. `buffers`: by part; none where this rank contributes what is neutral.
  absl::StatusOr<NamedTensors> Enter(const NamedStep& step, std::span<const NamedBuffers* const> buffers);

  // The same of an allgather of `total` elements, which go to buffers->gathered; null: nothing goes in, and what comes
  // out is dropped. Memory that `gathered` has is used where it is large enough. REQUIRES: nobody shares that, and it
  // was last used on the input's stream.
  absl::StatusOr<NamedTensors> EnterGather(const NamedBuffers* buffers, DType dtype, int64_t total);

  // The tensor that Enter gave, divided by an integer.
  absl::Status Divide(const TensorView& tensor, int divisor);

  // The call has ended, well or not. Results go to their tensors, if it has ended well; what the program queues on the
  // tensors' streams once their marks have arrived comes after all that is queued here.
  absl::Status Leave(const NamedStep& step, std::span<const NamedBuffers* const> buffers, bool well);

 private:
  // Host memory that copies read.
  using Pattern = std::array<std::byte, 256>;
  using Patterns = std::map<std::pair<DType, ReduceOp>, Pattern>;

  explicit NamedGpu(std::shared_ptr<device::Gpu> gpu) : gpu_(std::move(gpu)) {}
  absl::Status Open();
  absl::StatusOr<void*> Reserve(int64_t bytes);
  absl::StatusOr<TensorView> Neutral(const NamedStep& step);
  absl::StatusOr<TensorView> Pack(const NamedStep& step, std::span<const NamedBuffers* const> buffers);
  device::TensorPacker& PackerOf(const NamedStep& step);
  Device own() const { return {.gpu = gpu_->ordinal(), .stream = stream_}; }

  const std::shared_ptr<device::Gpu> gpu_;
  device::Gpu::Stream stream_ = nullptr;
  device::Gpu::Event done_ = nullptr;  // for the end
  void* buffer_ = nullptr;             // of one step at a time
  int64_t buffer_bytes_ = 0;
  std::vector<void*> outgrown_;  // buffers; freed at the end, for that may wait
  std::unique_ptr<Patterns> patterns_ = std::make_unique<Patterns>();
  std::map<std::string, device::TensorPacker> packers_;  // by the name of the first part
};

}  // namespace gyre::internal
