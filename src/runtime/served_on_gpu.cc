#include "runtime/served_on_gpu.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/gpu_wait.h"

namespace gyre::internal {

namespace {

constexpr size_t kAlignment = 64;  // floats that gradients on the GPU begin on multiples of

size_t Extent(size_t count) {
  return (count + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t FloatBytes(size_t floats) {
  return static_cast<int64_t>(floats * sizeof(float));
}

absl::Status Named(std::string_view name, const absl::Status& status) {
  return status.ok() ? status : Annotate(status, absl::StrCat("weights \"", absl::CHexEscape(ToAbsl(name)), "\""));
}

float* Floats(const device::PinnedMemory& memory) {
  return reinterpret_cast<float*>(memory.get());
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedOnGpu>> ServedOnGpu::Create(std::shared_ptr<device::Gpu> gpu,
                                                                 std::vector<Tensor> tensors, size_t gradients,
                                                                 int rank) {
  std::unique_ptr<ServedOnGpu> served(new ServedOnGpu(std::move(gpu), std::move(tensors), rank));
  RETURN_IF_ERROR(served->Open(gradients));
  return served;
}

ServedOnGpu::ServedOnGpu(std::shared_ptr<device::Gpu> gpu, std::vector<Tensor> tensors, int rank)
    : gpu_(std::move(gpu)), rank_(rank) {
  for (Tensor& tensor : tensors) {
    streams_.emplace(tensor.stream, tensor.name);
    slots_.push_back({.tensor = std::move(tensor)});
  }
}

absl::Status ServedOnGpu::Open(size_t gradients) {
  ASSIGN_OR_RETURN(probe_, gpu_->CreateEvent());
  RETURN_IF_ERROR(CheckStreams());
  size_t weights = 0, aligned = 0;
  for (Slot& slot : slots_) {
    ASSIGN_OR_RETURN(slot.queued, gpu_->CreateEvent());
    weights += slot.tensor.weights.size();
    aligned += Extent(slot.tensor.weights.size());
  }
  ASSIGN_OR_RETURN(mirrors_, device::AllocatePinned(gpu_, FloatBytes(weights)));
  ASSIGN_OR_RETURN(host_gradients_, device::AllocatePinned(gpu_, FloatBytes(gradients)));
  all_gradients_ = {Floats(host_gradients_), gradients};
  std::ranges::fill(all_gradients_, 0.0f);
  ASSIGN_OR_RETURN(gradients_, gpu_->Allocate(FloatBytes(std::max(aligned, kAlignment))));
  float* mirror = Floats(mirrors_);
  auto* gradient = static_cast<float*>(gradients_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const size_t count = slot.tensor.weights.size();
    slot.mirror = {mirror, count};
    slot.host_gradient = all_gradients_.data() + slot.tensor.gradient;
    slot.gradient = gradient;
    mirror += count;
    gradient += Extent(count);
    RETURN_IF_ERROR(GiveZeros(i));
  }
  return absl::OkStatus();
}

// Gpu::Free waits for work that uses the memory: all stays the process's where that does not end.
ServedOnGpu::~ServedOnGpu() {
  const auto deadline = std::chrono::steady_clock::now() + device::kLongestRest;
  bool rests = true;
  for (const Slot& slot : slots_) {
    if (slot.queued == nullptr) continue;
    const auto done = device::AwaitEvent(*gpu_, slot.queued, deadline);
    rests = rests && done.ok() && *done;
    gpu_->DestroyEvent(slot.queued);
  }
  if (probe_ != nullptr) gpu_->DestroyEvent(probe_);
  if (rests) {
    if (gradients_ != nullptr) gpu_->Free(gradients_);
    return;
  }
  (void)mirrors_.release();         // NOLINT(bugprone-unused-return-value): the GPU still has it
  (void)host_gradients_.release();  // NOLINT(bugprone-unused-return-value): likewise
}

absl::Status ServedOnGpu::CheckStreams() {
  for (const auto& [stream, name] : streams_) RETURN_IF_ERROR(Named(name, gpu_->Record(probe_, stream)));
  return absl::OkStatus();
}

// --- To the host and back ---

absl::Status ServedOnGpu::Copy(const Slot& slot, float* to, const float* from) {
  if (slot.tensor.weights.empty()) return absl::OkStatus();
  absl::Status copied = gpu_->Copy(to, from, FloatBytes(slot.tensor.weights.size()), slot.tensor.stream);
  if (copied.ok()) copied = gpu_->Record(slot.queued, slot.tensor.stream);
  return Named(slot.tensor.name, copied);
}

absl::Status ServedOnGpu::Await(std::string_view what, TimePoint deadline) {
  for (const Slot& slot : slots_) {
    ASSIGN_OR_RETURN(const bool done, device::AwaitEvent(*gpu_, slot.queued, deadline));
    if (done) continue;
    return absl::DeadlineExceededError(absl::StrCat("GPU ", gpu_->ordinal(), " of rank ", rank_, " had not copied the ",
                                                    ToAbsl(what), " of \"", absl::CHexEscape(slot.tensor.name),
                                                    "\" to the host in time"));
  }
  return absl::OkStatus();
}

absl::Status ServedOnGpu::FetchWeights(TimePoint deadline) {
  RETURN_IF_ERROR(CheckStreams());
  for (const Slot& slot : slots_) RETURN_IF_ERROR(Copy(slot, slot.mirror.data(), slot.tensor.weights.data()));
  return Await("weights", deadline);
}

// A tensor's weights were sent on the same stream: what has read them is done when its gradient is there.
absl::Status ServedOnGpu::FetchGradients(TimePoint deadline) {
  RETURN_IF_ERROR(CheckStreams());
  for (const Slot& slot : slots_) RETURN_IF_ERROR(Copy(slot, slot.host_gradient, slot.gradient));
  return Await("gradient", deadline);
}

absl::Status ServedOnGpu::SendWeights() {
  RETURN_IF_ERROR(CheckStreams());
  for (const Slot& slot : slots_) RETURN_IF_ERROR(Copy(slot, slot.tensor.weights.data(), slot.mirror.data()));
  return absl::OkStatus();
}

// --- Gradients that are not written where they are read ---

// Behind what uses the tensor's own gradient on the stream of the weights, which is also in front of what comes there.
absl::Status ServedOnGpu::Give(size_t tensor, std::span<const float> gradient, void* stream) {
  const Slot& slot = slots_[tensor];
  return gradient.empty() ? absl::OkStatus() : Named(slot.tensor.name, QueueGiven(slot, gradient, stream));
}

absl::Status ServedOnGpu::QueueGiven(const Slot& slot, std::span<const float> gradient, void* stream) {
  void* const own = slot.tensor.stream;
  RETURN_IF_ERROR(gpu_->Record(slot.queued, own));
  if (stream != own) RETURN_IF_ERROR(gpu_->Wait(stream, slot.queued));
  if (gradient.data() != slot.gradient) {
    RETURN_IF_ERROR(gpu_->Copy(slot.gradient, gradient.data(), FloatBytes(gradient.size()), stream));
  }
  RETURN_IF_ERROR(gpu_->Record(slot.queued, stream));
  return stream != own ? gpu_->Wait(own, slot.queued) : absl::OkStatus();
}

absl::Status ServedOnGpu::GiveZeros(size_t tensor) {
  const Slot& slot = slots_[tensor];
  if (slot.tensor.weights.empty()) return absl::OkStatus();
  absl::Status zeroed = gpu_->Record(slot.queued, slot.tensor.stream);
  if (zeroed.ok()) zeroed = gpu_->Zero(slot.gradient, FloatBytes(slot.tensor.weights.size()), slot.tensor.stream);
  if (zeroed.ok()) zeroed = gpu_->Record(slot.queued, slot.tensor.stream);
  return Named(slot.tensor.name, zeroed);
}

}  // namespace gyre::internal
