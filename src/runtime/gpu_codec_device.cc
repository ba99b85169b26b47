#include "runtime/gpu_codec_device.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/gpu_codecs.h"
#include "device/gpu_wait.h"
#include "runtime/gpu_codec_speed.h"
#include "runtime/gpu_parcel.h"
#include "runtime/gpu_sparse_encoder.h"

namespace gyre::internal {

namespace {

using compression::PayloadKind;
using compression::StateArrays;
using device::Quantizer;
using device::kernels::LowRankMatrix;
using device::kernels::LowRankParts;
using device::kernels::LowRankPass;

static_assert(static_cast<int>(PayloadKind::kF32) == static_cast<int>(Quantizer::kF32));
static_assert(static_cast<int>(PayloadKind::kInt8) == static_cast<int>(Quantizer::kInt8));
static_assert(static_cast<int>(PayloadKind::kTernary) == static_cast<int>(Quantizer::kTernary));

constexpr auto kSquareBytes = int64_t{device::Gpu::kSquareParts * sizeof(double)};

// As much memory on the host as the arrays have.
class HostArrays {
 public:
  explicit HostArrays(std::span<const StateArrays> like) {
    for (const StateArrays& each : like) {
      StateArrays& here = arrays_.emplace_back();
      for (const auto array : each) here.emplace_back(memory_.emplace_back(array.size()));
    }
  }
  std::span<const StateArrays> arrays() const { return arrays_; }

 private:
  std::vector<std::vector<float>> memory_;
  std::vector<StateArrays> arrays_;
};

}  // namespace

GpuCodecDevice::GpuCodecDevice(OpenedGpu opened, device::Gpu::Stream stream, std::string name,
                               std::chrono::milliseconds timeout)
    : opened_(std::move(opened)), stream_(stream), name_(std::move(name)), timeout_(timeout) {}

GpuCodecDevice::~GpuCodecDevice() {
  looks_.reset();  // while all that it uses is there
  if (!memory_.empty() && Rests()) {
    for (void* const memory : memory_) gpu().Free(memory);
  }
  if (queued_ != nullptr) gpu().DestroyEvent(queued_);
}

CodecSpeed GpuCodecDevice::Speed(const Compression& compression) {
  if (!speed_) speed_ = MeasureSpeedOnGpu(opened_, compression, timeout_);
  return *speed_;
}

// --- Memory ---

absl::StatusOr<void*> GpuCodecDevice::Allocate(int64_t bytes, std::string_view what) {
  auto memory = gpu().Allocate(bytes);
  if (!memory.ok()) return Named(Annotate(memory.status(), absl::StrCat("no room for ", ToAbsl(what))));
  memory_.push_back(*memory);
  return *memory;
}

absl::StatusOr<std::span<float>> GpuCodecDevice::Keep(int64_t count) {
  const int64_t bytes = count * int64_t{sizeof(float)};
  ASSIGN_OR_RETURN(void* const memory, Allocate(bytes, "what compression keeps of a gradient"));
  RETURN_IF_ERROR(Named(gpu().Zero(memory, bytes, stream_)));
  return std::span(static_cast<float*>(memory), static_cast<size_t>(count));
}

absl::StatusOr<std::span<float>> GpuCodecDevice::Scratch(int64_t count) {
  if (count > std::ssize(scratch_)) {
    const int64_t wanted = std::max(count, std::ssize(scratch_) * 3 / 2);
    ASSIGN_OR_RETURN(void* const memory, Allocate(wanted * int64_t{sizeof(float)}, "sums of compressed gradients"));
    scratch_ = {static_cast<float*>(memory), static_cast<size_t>(wanted)};
  }
  return scratch_.first(static_cast<size_t>(count));
}

std::unique_ptr<Parcel> GpuCodecDevice::MakeParcel() {
  return std::make_unique<GpuParcel>(*this);
}

// --- Work ---

absl::Status GpuCodecDevice::Quantize(PayloadKind kind, const float* gradient, float* kept, int64_t count,
                                      uint64_t seed, std::byte* out) {
  return Named(gpu().codecs().Quantize(static_cast<Quantizer>(kind), gradient, kept, count, seed, out, stream_));
}

absl::Status GpuCodecDevice::DequantizeAdd(PayloadKind kind, const std::byte* from, int64_t count, float scale,
                                           float* sum) {
  return Named(gpu().codecs().DequantizeAdd(static_cast<Quantizer>(kind), from, count, scale, sum, stream_));
}

absl::Status GpuCodecDevice::Zero(std::span<float> values) {
  return Named(gpu().Zero(values.data(), static_cast<int64_t>(values.size_bytes()), stream_));
}

absl::Status GpuCodecDevice::Move(std::span<float> values, std::span<float> sum) {
  RETURN_IF_ERROR(AddScaled(values, 1, sum));
  return Zero(values);
}

// All matrices' sums of pieces lie one behind the other, for they are made at once.
absl::Status GpuCodecDevice::RunPass(LowRankPass pass, std::span<const LowRankMatrix> matrices) {
  std::vector<LowRankMatrix> with_parts(matrices.begin(), matrices.end());
  if (pass != LowRankPass::kFinish) {
    int64_t total = 0;
    for (const LowRankMatrix& m : matrices) total += LowRankParts(m.rows, m.columns, m.rank);
    ASSIGN_OR_RETURN(const std::span<float> parts, Scratch(total));
    float* next = parts.data();
    for (LowRankMatrix& m : with_parts) {
      m.parts = next;
      next += LowRankParts(m.rows, m.columns, m.rank);
    }
  }
  return Named(gpu().codecs().LowRank(pass, with_parts, stream_));
}

absl::StatusOr<std::unique_ptr<SparseEncoder>> GpuCodecDevice::MakeSparseEncoder(const Compression& compression,
                                                                                 const ExchangeSettings& settings,
                                                                                 const HostPieces& pieces) {
  return GpuSparseEncoder::Create(*this, compression, settings, pieces);
}

// --- Looking ---

absl::Status GpuCodecDevice::Look(std::span<const std::span<const float>> gradients) {
  if (looks_ == nullptr) looks_ = MakeParcel();
  const auto counters = std::ssize(gradients) * int64_t{sizeof(uint64_t)};
  RETURN_IF_ERROR(looks_->Resize(kSquareBytes + counters));
  RETURN_IF_ERROR(Named(gpu().Zero(looks_->there(), looks_->size(), stream_)));
  auto* const squares = reinterpret_cast<double*>(looks_->there());
  auto* counter = reinterpret_cast<uint64_t*>(looks_->there() + kSquareBytes);
  for (const std::span<const float> gradient : gradients) {
    const ConstTensorView view(gradient.data(), std::ssize(gradient), DType::kF32);
    RETURN_IF_ERROR(Named(gpu().AddSquares(view, squares, counter++, stream_)));
  }
  looking_ = true;
  return looks_->Bring();
}

CodecDevice::Facts GpuCodecDevice::Looked() {
  looking_ = false;
  const auto* const squares = reinterpret_cast<const double*>(looks_->here());
  const auto* const counters = reinterpret_cast<const uint64_t*>(looks_->here() + kSquareBytes);
  const auto gradients = (looks_->size() - kSquareBytes) / int64_t{sizeof(uint64_t)};
  return {.squares = std::accumulate(squares, squares + device::Gpu::kSquareParts, 0.0),
          .non_finite = std::vector<int64_t>(counters, counters + gradients)};
}

// --- Waiting ---

absl::StatusOr<bool> GpuCodecDevice::Done() {
  while (!awaited_.empty()) {
    const auto done = gpu().Done(awaited_.back());
    if (!done.ok()) return Named(done.status());
    if (!*done) return false;
    awaited_.pop_back();
  }
  return true;
}

std::string GpuCodecDevice::Awaited() const {
  return absl::StrCat(
      name_, looking_ ? " had not looked at all gradients" : " had not brought compressed gradients to the host",
      ", or not begun with what was queued before");
}

absl::Status GpuCodecDevice::AwaitQueued(TimePoint deadline) {
  if (queued_ == nullptr) {
    auto made = gpu().CreateEvent();
    if (!made.ok()) return Named(made.status());
    queued_ = *made;
  }
  RETURN_IF_ERROR(Named(gpu().Record(queued_, stream_)));
  const auto done = device::AwaitEvent(gpu(), queued_, deadline);
  if (!done.ok()) return Named(done.status());
  if (*done) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(name_, " had not done what was queued for compressed gradients"));
}

bool GpuCodecDevice::Rests() {
  if (!rests_) rests_ = AwaitQueued(std::chrono::steady_clock::now() + device::kLongestRest).ok();
  return *rests_;
}

absl::Status GpuCodecDevice::Named(const absl::Status& status) const {
  return status.ok() ? status : Annotate(status, name_);
}

// --- What is kept ---

// Between memory of the GPU and memory of the host that is not pinned: such copies may block, and wait for nothing but
// themselves once all before them has been done. Also on failure it returns once no copy uses what is the host's.
absl::Status GpuCodecDevice::Copy(std::span<const StateArrays> to, std::span<const StateArrays> from) {
  RETURN_IF_ERROR(AwaitQueued(DeadlineAfter(std::chrono::steady_clock::now(), timeout_)));
  absl::Status copied;
  for (size_t i = 0; i < to.size(); ++i) {
    for (size_t k = 0; k < to[i].size() && copied.ok(); ++k) {
      const auto bytes = static_cast<int64_t>(to[i][k].size_bytes());
      copied = gpu().Copy(to[i][k].data(), from[i][k].data(), bytes, stream_);
    }
  }
  copied.Update(gpu().Synchronize(stream_));
  return Named(copied);
}

absl::StatusOr<std::vector<std::byte>> GpuCodecDevice::Save(std::span<const StateArrays> codecs) {
  const HostArrays here(codecs);
  RETURN_IF_ERROR(Copy(here.arrays(), codecs));
  return compression::SaveState(here.arrays());
}

absl::Status GpuCodecDevice::Restore(std::span<const std::span<const std::byte>> saved,
                                     std::span<const StateArrays> codecs) {
  const HostArrays here(codecs);
  RETURN_IF_ERROR(compression::RestoreState(saved, here.arrays()));
  return Copy(codecs, here.arrays());
}

std::shared_ptr<CodecDevice> MakeGpuDevice(OpenedGpu opened, device::Gpu::Stream stream, int rank,
                                           std::chrono::milliseconds timeout) {
  std::string name = absl::StrCat("GPU ", opened.gpu->ordinal(), " of rank ", rank);
  return std::make_shared<GpuCodecDevice>(std::move(opened), stream, std::move(name), timeout);
}

}  // namespace gyre::internal
