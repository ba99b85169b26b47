#include "optimizer/optimizer_on_gpu.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/gpu_wait.h"
#include "optimizer/config.h"
#include "optimizer/rules.h"
#include "optimizer/state_format.h"

namespace gyre {

namespace {

constexpr size_t kAlignment = 64;  // floats that accumulators begin on multiples of

}  // namespace

absl::StatusOr<std::unique_ptr<OptimizerOnGpu>> OptimizerOnGpu::Create(std::shared_ptr<device::Gpu> gpu,
                                                                       const OptimizerConfig& config,
                                                                       std::span<const Buffer> buffers,
                                                                       TimePoint deadline) {
  RETURN_IF_ERROR(CheckConfig(config));
  std::unique_ptr<OptimizerOnGpu> optimizer(new OptimizerOnGpu(std::move(gpu), config));
  RETURN_IF_ERROR(optimizer->Open(buffers, deadline));
  return optimizer;
}

OptimizerOnGpu::OptimizerOnGpu(std::shared_ptr<device::Gpu> gpu, const OptimizerConfig& config)
    : gpu_(std::move(gpu)), config_(config) {}

absl::Status OptimizerOnGpu::Open(std::span<const Buffer> buffers, TimePoint deadline) {
  for (const Buffer& buffer : buffers) {
    if (buffer.count < 0) {
      return absl::InvalidArgumentError(absl::StrCat("buffer ", slots_.size(), " has ", buffer.count, " elements"));
    }
    const Slot& slot = slots_.emplace_back(Slot{.buffer = buffer, .begin = floats_});
    floats_ += Extent(slot) * static_cast<size_t>(AccumulatorsOf(config_));
  }
  ASSIGN_OR_RETURN(stream_, gpu_->CreateStream());
  ASSIGN_OR_RETURN(done_, gpu_->CreateEvent());
  if (floats_ == 0) return absl::OkStatus();
  const auto bytes = static_cast<int64_t>(floats_ * sizeof(float));
  ASSIGN_OR_RETURN(void* const state, gpu_->Allocate(bytes));
  state_ = static_cast<float*>(state);
  if (InitialOf(config_) != 0) return Fill(std::vector<float>(floats_, InitialOf(config_)), deadline);
  RETURN_IF_ERROR(gpu_->Zero(state_, bytes, stream_));
  return Await(deadline);
}

// Buffers' streams need not be there any more.
OptimizerOnGpu::~OptimizerOnGpu() {
  if (done_ != nullptr) {
    if (AwaitUses(std::chrono::steady_clock::now() + device::kLongestRest).ok()) {
      if (state_ != nullptr) gpu_->Free(state_);
    } else {
      (void)staging_.release();  // NOLINT(bugprone-unused-return-value): the GPU may read it yet
    }
    gpu_->DestroyEvent(done_);
  }
  for (const auto& [stream, event] : uses_) gpu_->DestroyEvent(event);
  if (stream_ != nullptr) gpu_->DestroyStream(stream_);
}

// --- The state ---

size_t OptimizerOnGpu::Extent(const Slot& slot) const {
  return (static_cast<size_t>(slot.buffer.count) + kAlignment - 1) / kAlignment * kAlignment;
}

float* OptimizerOnGpu::Accumulator(const Slot& slot, int which) const {
  if (which >= AccumulatorsOf(config_)) return nullptr;
  return state_ + slot.begin + static_cast<size_t>(which) * Extent(slot);
}

std::span<float> OptimizerOnGpu::Accumulator(std::vector<float>& state, const Slot& slot, int which) const {
  if (which >= AccumulatorsOf(config_)) return {};
  return std::span(state).subspan(slot.begin + static_cast<size_t>(which) * Extent(slot),
                                  static_cast<size_t>(slot.buffer.count));
}

// --- Steps ---

absl::Status OptimizerOnGpu::Step(std::span<const Update> updates) {
  std::map<std::pair<device::Gpu::Stream, int64_t>, std::vector<device::kernels::Weights>> batches;  // and by step
  for (const Update& update : updates) {
    Slot& slot = slots_[update.buffer];
    ++slot.steps;
    if (slot.buffer.count > 0) AddTo(batches[{slot.buffer.stream, slot.steps}], slot, update);
  }
  for (const auto& [place, tensors] : batches) {
    if (tensors.empty()) continue;
    const auto& [stream, step] = place;
    RETURN_IF_ERROR(gpu_->Update(RuleAt(config_, step), tensors, stream));
    if (!uses_.contains(stream)) {
      ASSIGN_OR_RETURN(uses_[stream], gpu_->CreateEvent());
    }
    RETURN_IF_ERROR(gpu_->Record(uses_[stream], stream));
  }
  return absl::OkStatus();
}

void OptimizerOnGpu::AddTo(std::vector<device::kernels::Weights>& tensors, const Slot& slot,
                           const Update& update) const {
  float* const first = Accumulator(slot, 0);
  float* const second = Accumulator(slot, 1);
  if (!update.rows) {
    tensors.push_back({update.weights, update.gradient, first, second, slot.buffer.count});
    return;
  }
  const std::span<const int64_t> rows = *update.rows;
  const auto from = [](auto* array, int64_t elements) { return array == nullptr ? nullptr : array + elements; };
  for (size_t i = 0, end = 0; i < rows.size(); i = end) {
    while (end < rows.size() && rows[end] - rows[i] == static_cast<int64_t>(end - i)) ++end;
    const int64_t begin = rows[i] * update.width;
    tensors.push_back({.weights = update.weights + begin,
                       .gradient = from(update.gradient, static_cast<int64_t>(i) * update.width),
                       .first = from(first, begin),
                       .second = from(second, begin),
                       .count = static_cast<int64_t>(end - i) * update.width});
  }
}

absl::Status OptimizerOnGpu::SetLearningRate(float learning_rate) {
  RETURN_IF_ERROR(CheckLearningRate(learning_rate));
  config_ = WithLearningRate(config_, learning_rate);
  return absl::OkStatus();
}

float OptimizerOnGpu::learning_rate() const {
  return LearningRateOf(config_);
}

// --- To the host and back ---

absl::Status OptimizerOnGpu::Await(TimePoint deadline) {
  RETURN_IF_ERROR(gpu_->Record(done_, stream_));
  ASSIGN_OR_RETURN(const bool done, device::AwaitEvent(*gpu_, done_, deadline));
  if (done) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("GPU ", gpu_->ordinal(), " had not finished what was queued for the optimizer's state"));
}

absl::Status OptimizerOnGpu::AwaitUses(TimePoint deadline) {
  for (const auto& [stream, event] : uses_) RETURN_IF_ERROR(gpu_->Wait(stream_, event));
  return Await(deadline);
}

// REQUIRES: nothing uses it.
absl::Status OptimizerOnGpu::Fill(std::vector<float> state, TimePoint deadline) {
  if (state.empty()) return absl::OkStatus();
  staging_ = std::make_unique<std::vector<float>>(std::move(state));
  const auto bytes = static_cast<int64_t>(staging_->size() * sizeof(float));
  RETURN_IF_ERROR(gpu_->Copy(state_, staging_->data(), bytes, stream_));
  RETURN_IF_ERROR(Await(deadline));
  staging_.reset();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::byte>> OptimizerOnGpu::Save(TimePoint deadline) {
  RETURN_IF_ERROR(AwaitUses(deadline));  // what is copied to memory that is not pinned may block
  std::vector<float> state(floats_);
  RETURN_IF_ERROR(gpu_->Copy(state.data(), state_, static_cast<int64_t>(floats_ * sizeof(float)), stream_));
  RETURN_IF_ERROR(gpu_->Synchronize(stream_));
  StateWriter writer(config_.index(), slots_.size());
  for (const Slot& slot : slots_) {
    writer.Add(slot.buffer.count, slot.steps, Accumulator(state, slot, 0), Accumulator(state, slot, 1));
  }
  return std::move(writer).Finish();
}

absl::Status OptimizerOnGpu::Restore(std::span<const std::byte> bytes, TimePoint deadline) {
  ASSIGN_OR_RETURN(StateReader reader, StateReader::Open(bytes, config_.index(), slots_.size()));
  std::vector<Slot> restored = slots_;
  std::vector<float> state(floats_);
  for (Slot& slot : restored) {
    RETURN_IF_ERROR(
        reader.Next(slot.buffer.count, slot.steps, Accumulator(state, slot, 0), Accumulator(state, slot, 1)));
  }
  RETURN_IF_ERROR(reader.CheckEnd());
  RETURN_IF_ERROR(AwaitUses(deadline));
  RETURN_IF_ERROR(Fill(std::move(state), deadline));
  slots_ = std::move(restored);
  return absl::OkStatus();
}

}  // namespace gyre
