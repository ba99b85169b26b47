#include "runtime/named_call.h"

#include <cstring>
#include <limits>
#include <numeric>
#include <span>

#include "base/status.h"
#include "device/reduce.h"

namespace gyre::internal {

namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

template <typename T>
T NeutralOf(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  if (op == ReduceOp::kProduct) return T(1);
  if (op == ReduceOp::kMin) return Limits::has_infinity ? Limits::infinity() : Limits::max();
  if (op == ReduceOp::kMax) return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  return T(0);
}

template <typename T>
void Fill(std::span<std::byte> bytes, T value) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(T)) std::memcpy(bytes.data() + at, &value, sizeof(T));
}

// Elements that change no result of the reduction.
void FillNeutral(std::span<std::byte> bytes, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kU8: return Fill(bytes, NeutralOf<uint8_t>(op));
    case DType::kI8: return Fill(bytes, NeutralOf<int8_t>(op));
    case DType::kI16: return Fill(bytes, NeutralOf<int16_t>(op));
    case DType::kU16: return Fill(bytes, NeutralOf<uint16_t>(op));
    case DType::kI32: return Fill(bytes, NeutralOf<int32_t>(op));
    case DType::kI64: return Fill(bytes, NeutralOf<int64_t>(op));
    case DType::kF16: return Fill(bytes, Float16(NeutralOf<float>(op)).bits);
    case DType::kBF16: return Fill(bytes, BFloat16(NeutralOf<float>(op)).bits);
    case DType::kF32: return Fill(bytes, NeutralOf<float>(op));
    case DType::kF64: return Fill(bytes, NeutralOf<double>(op));
    case DType::kBool: return Fill(bytes, NeutralOf<bool>(op));
  }
}

}  // namespace

void NamedCallRunner::Start(const NamedStep& step, const NamedBuffers* buffers) {
  step_ = &step;
  ticket_ = step.ticket;
  buffers_ = buffers;
  options_ = buffers != nullptr ? CallOptions{.timeout = buffers->timeout} : CallOptions{};
  divided_ = {};
  const bool deviates = step.kind == NamedStep::Kind::kDeviate;
  // Within a host, calls that differ end alike on all ranks and break nothing. Between hosts one byte tells first.
  agreeing_ = step.kind != NamedStep::Kind::kRun && communicator_.node_count() > 1;
  if (agreeing_) {
    ++agreements_;
    follows_ = deviates ? 0 : 1;
    work_ = communicator_.AllReduceAsync(std::span(&follows_, 1), {.op = ReduceOp::kMin, .timeout = options_.timeout});
  } else if (deviates) {
    work_ = communicator_.BarrierAsync(options_);
  } else {
    StartData();
  }
}

std::optional<absl::Status> NamedCallRunner::Poll() {
  if (!busy() || !work_.Done()) return std::nullopt;
  absl::Status status = work_.Wait();
  if (std::exchange(agreeing_, false) && status.ok()) {
    if (follows_ != 0) {
      StartData();
      return std::nullopt;
    }
    status = absl::InvalidArgumentError("a rank does not follow the frozen order");
  }
  if (status.ok() && divided_.count > 0) {
    const void* const source = divided_.data;
    device::Reduce({.dtype = divided_.dtype, .op = ReduceOp::kSum, .divisor = contributors()}, {&source, 1},
                   {&divided_.data, 1}, divided_.count);
  }
  step_ = nullptr;
  work_ = Work();
  return status;
}

void NamedCallRunner::StartData() {
  switch (step_->call.signature.kind) {
    case NamedKind::kAllReduce: return StartAllReduce();
    case NamedKind::kAllGather: return StartAllGather();
    case NamedKind::kBroadcast: work_ = StartBroadcast(); return;
    case NamedKind::kRefused: break;  // never agreed on
  }
}

// Scratch of the operation's size, all neutral.
void NamedCallRunner::MakeNeutral() {
  const NamedSignature& signature = step_->call.signature;
  scratch_.resize(static_cast<size_t>(signature.count * DTypeSize(signature.dtype)));
  FillNeutral(scratch_, signature.dtype, signature.op);
}

void NamedCallRunner::StartAllReduce() {
  const NamedSignature& signature = step_->call.signature;
  ReduceOptions options{.op = signature.op,
                        .prescale = signature.prescale,
                        .postscale = signature.postscale,
                        .timeout = options_.timeout};
  const bool lacks_some = !step_->absent.empty();
  const bool averages = lacks_some && signature.op == ReduceOp::kAverage;
  if (averages) options.op = ReduceOp::kSum;
  if (averages && IsFloat(signature.dtype)) options.postscale /= contributors();
  if (buffers_ == nullptr) {
    MakeNeutral();
    work_ = communicator_.AllReduceAsync(TensorView(scratch_.data(), signature.count, signature.dtype), options);
    return;
  }
  if (averages && !IsFloat(signature.dtype)) divided_ = buffers_->out;
  work_ = communicator_.AllReduceAsync(buffers_->in, buffers_->out, options);
}

void NamedCallRunner::StartAllGather() {
  const NamedCall& call = step_->call;
  const int64_t total = std::accumulate(call.counts.begin(), call.counts.end(), int64_t{0});
  const DType dtype = call.signature.dtype;
  const auto bytes = static_cast<size_t>(total * DTypeSize(dtype));
  std::vector<std::byte>& all = buffers_ != nullptr ? buffers_->gathered->bytes : scratch_;
  all.resize(bytes);
  if (buffers_ != nullptr) buffers_->gathered->counts = call.counts;
  const ConstTensorView in = buffers_ != nullptr ? buffers_->in : ConstTensorView(nullptr, 0, dtype);
  work_ = communicator_.AllGatherVAsync(in, call.counts, {all.data(), total, dtype}, options_);
}

Work NamedCallRunner::StartBroadcast() {
  const NamedSignature& signature = step_->call.signature;
  if (buffers_ != nullptr) return communicator_.BroadcastAsync(buffers_->out, signature.root, options_);
  scratch_.resize(static_cast<size_t>(signature.count * DTypeSize(signature.dtype)));
  return communicator_.BroadcastAsync({scratch_.data(), signature.count, signature.dtype}, signature.root, options_);
}

}  // namespace gyre::internal
