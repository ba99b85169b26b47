#include "runtime/named_gpu.h"

#include <algorithm>
#include <chrono>
#include <type_traits>

#include "base/status.h"
#include "device/gpu_wait.h"
#include "fusion/fused_calls.h"
#include "runtime/gpus.h"
#include "runtime/named_call.h"
#include "runtime/neutral.h"

namespace gyre::internal {

namespace {

constexpr size_t kMostPackers = 256;       // groups may have other names every time
constexpr int64_t kLeastBuffer = 1 << 20;  // bytes

// Of `bytes` or, where there is no room for so much, of `least`: then `bytes` is that.
template <typename Allocate>
std::invoke_result_t<Allocate, int64_t> AllocateAtLeast(int64_t least, int64_t& bytes, Allocate allocate) {
  auto memory = allocate(bytes);
  if (bytes == least || !absl::IsResourceExhausted(memory.status())) return memory;
  bytes = least;
  return allocate(bytes);
}

std::vector<device::Segment> SegmentsOf(const NamedStep& step, std::span<const NamedBuffers* const> buffers) {
  const std::vector<int64_t> places = PlacesOf(step.parts);
  std::vector<device::Segment> segments;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const TensorView& view = buffers[i]->out;
    segments.push_back({.data = view.data, .count = view.count, .first = places[i], .dtype = view.dtype});
  }
  return segments;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NamedGpu>> NamedGpu::Open(std::shared_ptr<device::Gpu> gpu) {
  std::unique_ptr<NamedGpu> named(new NamedGpu(std::move(gpu)));
  RETURN_IF_ERROR(named->Open());
  return named;
}

absl::Status NamedGpu::Open() {
  ASSIGN_OR_RETURN(stream_, gpu_->CreateStream());
  ASSIGN_OR_RETURN(done_, gpu_->CreateEvent());
  return absl::OkStatus();
}

NamedGpu::~NamedGpu() {
  if (done_ != nullptr) {
    const bool marked = gpu_->Record(done_, stream_).ok();
    const auto rests = device::AwaitEvent(*gpu_, done_, std::chrono::steady_clock::now() + device::kLongestRest);
    if (marked && rests.ok() && *rests) {
      for (void* memory : outgrown_) gpu_->Free(memory);
      if (buffer_ != nullptr) gpu_->Free(buffer_);
    } else if (!patterns_->empty()) {
      (void)patterns_.release();  // NOLINT(bugprone-unused-return-value): the GPU may read it yet
    }
    gpu_->DestroyEvent(done_);
  }
  packers_.clear();
  if (stream_ != nullptr) gpu_->DestroyStream(stream_);
}

// --- Before a call ---

// Zero at first: what lies between tensors travels with them, whatever it is by then, and memory that was never written
// may not be read. Twice as much each time, where there is room, so that what was outgrown is less than what there is.
absl::StatusOr<void*> NamedGpu::Reserve(int64_t bytes) {
  if (bytes <= buffer_bytes_) return buffer_;
  int64_t larger = std::max({bytes, 2 * buffer_bytes_, kLeastBuffer});
  ASSIGN_OR_RETURN(void* const memory,
                   AllocateAtLeast(bytes, larger, [this](int64_t size) { return gpu_->Allocate(size); }));
  if (buffer_ != nullptr) outgrown_.push_back(buffer_);
  buffer_ = memory;
  buffer_bytes_ = larger;
  RETURN_IF_ERROR(gpu_->Zero(buffer_, buffer_bytes_, stream_));
  return buffer_;
}

// A pattern from the host, and then twice as much with each copy.
absl::StatusOr<TensorView> NamedGpu::Neutral(const NamedStep& step) {
  const NamedSignature& signature = step.parts.front().call.signature;
  const int64_t count = step.parts.size() > 1 ? PlacesOf(step.parts).back() : signature.count;
  const int64_t bytes = count * DTypeSize(signature.dtype);
  ASSIGN_OR_RETURN(void* const data, Reserve(bytes));
  const auto [at, fresh] = patterns_->try_emplace({signature.dtype, signature.op});
  Pattern& pattern = at->second;
  if (fresh) FillNeutral(pattern, signature.dtype, signature.op);
  const TensorView view(data, count, signature.dtype, own());
  if (std::ranges::all_of(pattern, [](std::byte byte) { return byte == std::byte{}; })) {
    RETURN_IF_ERROR(gpu_->Zero(data, bytes, stream_));
    return view;
  }
  int64_t filled = std::min<int64_t>(bytes, std::ssize(pattern));
  RETURN_IF_ERROR(gpu_->Copy(data, pattern.data(), filled, stream_));
  for (; filled < bytes; filled *= 2) {
    std::byte* const rest = static_cast<std::byte*>(data) + filled;
    RETURN_IF_ERROR(gpu_->Copy(rest, data, std::min(filled, bytes - filled), stream_));
  }
  return view;
}

device::TensorPacker& NamedGpu::PackerOf(const NamedStep& step) {
  const std::string& name = step.parts.front().call.name;
  if (packers_.size() >= kMostPackers && !packers_.contains(name)) packers_.clear();
  return packers_.try_emplace(name, *gpu_, stream_).first->second;
}

absl::StatusOr<TensorView> NamedGpu::Pack(const NamedStep& step, std::span<const NamedBuffers* const> buffers) {
  const DType dtype = step.parts.front().call.signature.dtype;
  const int64_t count = PlacesOf(step.parts).back();
  ASSIGN_OR_RETURN(void* const data, Reserve(count * DTypeSize(dtype)));
  device::TensorPacker& packer = PackerOf(step);
  RETURN_IF_ERROR(packer.Choose(SegmentsOf(step, buffers), dtype));
  RETURN_IF_ERROR(packer.Pack(data));
  return TensorView(data, count, dtype, own());
}

absl::StatusOr<NamedTensors> NamedGpu::Enter(const NamedStep& step, std::span<const NamedBuffers* const> buffers) {
  for (const NamedBuffers* one : buffers) RETURN_IF_ERROR(one->marks->Begin(stream_));
  if (buffers.size() == 1) {
    NamedTensors tensors{.in = buffers[0]->in, .out = buffers[0]->out};
    tensors.in.device = tensors.out.device = own();
    return tensors;
  }
  ASSIGN_OR_RETURN(const TensorView buffer, buffers.empty() ? Neutral(step) : Pack(step, buffers));
  return NamedTensors{.in = buffer, .out = buffer};
}

absl::StatusOr<NamedTensors> NamedGpu::EnterGather(const NamedBuffers* buffers, DType dtype, int64_t total) {
  const int64_t bytes = total * DTypeSize(dtype);
  if (buffers == nullptr) {
    ASSIGN_OR_RETURN(void* const data, Reserve(bytes));
    return NamedTensors{.in = {nullptr, 0, dtype, own()}, .out = {data, total, dtype, own()}};
  }
  RETURN_IF_ERROR(buffers->marks->Begin(stream_));
  Gathered& gathered = *buffers->gathered;
  const int64_t room = gathered.memory != nullptr ? gathered.memory->bytes : 0;
  if (room < bytes) {
    int64_t larger = std::max(bytes, 2 * room);
    ASSIGN_OR_RETURN(auto piece,
                     AllocateAtLeast(bytes, larger, [this](int64_t size) { return AllocateOn(gpu_, size); }));
    gathered.memory = std::make_shared<GpuMemory>(GpuMemory{std::move(piece), larger, std::move(gathered.memory)});
  }
  void* const data = gathered.memory != nullptr ? gathered.memory->piece.get() : nullptr;
  gathered.on_gpu = TensorView(data, total, dtype, buffers->in.device);
  NamedTensors tensors{.in = buffers->in, .out = gathered.on_gpu};
  tensors.in.device = tensors.out.device = own();
  return tensors;
}

// --- After it ---

absl::Status NamedGpu::Divide(const TensorView& tensor, int divisor) {
  const std::array<const void*, 1> source = {tensor.data};
  const std::array<void*, 1> result = {tensor.data};
  return gpu_->Reduce({.dtype = tensor.dtype, .op = ReduceOp::kSum, .divisor = divisor}, source, result, tensor.count,
                      stream_);
}

absl::Status NamedGpu::Leave(const NamedStep& step, std::span<const NamedBuffers* const> buffers, bool well) {
  absl::Status status;
  if (well && buffers.size() > 1) status = PackerOf(step).Unpack(buffer_);
  const NamedMarks* told = nullptr;
  for (const NamedBuffers* one : buffers) {
    if (one->marks.get() == told) continue;  // a group's are one
    told = one->marks.get();
    status.Update(one->marks->End(stream_));
  }
  return status;
}

}  // namespace gyre::internal
