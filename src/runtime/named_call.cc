#include "runtime/named_call.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/reduce.h"
#include "runtime/neutral.h"

namespace gyre::internal {

namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

// Whatever the GPU's word for it, it does not say that ranks differ.
absl::Status OfThisRank(const absl::Status& status) {
  return status.ok() ? status : absl::InternalError(absl::StrCat("on this rank's GPU: ", status.message()));
}

}  // namespace

void NamedCallRunner::Start(const NamedStep& step, std::vector<const NamedBuffers*> buffers, NamedGpu* gpu) {
  step_ = &step;
  buffers_ = std::move(buffers);
  gpu_ = gpu;
  options_ = buffers_.empty() ? CallOptions{} : CallOptions{.timeout = buffers_.front()->timeout};
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

bool NamedCallRunner::Carries(uint64_t ticket) const {
  return busy() && std::ranges::any_of(step_->parts, [&](const NamedPart& part) { return part.ticket == ticket; });
}

std::optional<absl::Status> NamedCallRunner::Poll() {
  if (!busy() || !work_.Done()) return std::nullopt;
  absl::Status status = failure_.ok() ? work_.Wait() : std::exchange(failure_, absl::OkStatus());
  if (std::exchange(agreeing_, false) && status.ok()) {
    if (follows_ != 0) {
      StartData();
      return std::nullopt;
    }
    status = absl::InvalidArgumentError("a rank does not follow the frozen order");
  }
  if (status.ok()) status = Divide();
  if (std::exchange(on_gpu_, false)) {
    const absl::Status left = OfThisRank(gpu_->Leave(*step_, buffers_, status.ok()));
    if (status.ok()) status = left;
  }
  step_ = nullptr;
  work_ = Work();
  return status;
}

// What is wrong here alone ends this rank's operations, and so all ranks'.
void NamedCallRunner::StartData() {
  failure_ = StartCall();
}

absl::Status NamedCallRunner::StartCall() {
  on_gpu_ = call().signature.on_gpu;
  if (on_gpu_ && gpu_ == nullptr) {
    on_gpu_ = false;
    return absl::InternalError("this rank is to contribute to an operation on GPUs, and has brought no tensor on one");
  }
  switch (call().signature.kind) {
    case NamedKind::kAllReduce: return StartAllReduce();
    case NamedKind::kAllGather: return StartAllGather();
    case NamedKind::kBroadcast: return StartBroadcast();
    case NamedKind::kRefused: break;  // never agreed on
  }
  return absl::OkStatus();
}

// What the call reads and writes; without buffers, as much that is neutral.
absl::StatusOr<NamedTensors> NamedCallRunner::Tensors() {
  if (on_gpu_) {
    auto tensors = gpu_->Enter(*step_, buffers_);
    if (!tensors.ok()) return OfThisRank(tensors.status());
    return tensors;
  }
  if (!buffers_.empty()) return NamedTensors{.in = buffers_.front()->in, .out = buffers_.front()->out};
  const NamedSignature& signature = call().signature;
  scratch_.resize(static_cast<size_t>(signature.count * DTypeSize(signature.dtype)));
  FillNeutral(scratch_, signature.dtype, signature.op);
  const TensorView neutral(scratch_.data(), signature.count, signature.dtype);
  return NamedTensors{.in = neutral, .out = neutral};
}

absl::Status NamedCallRunner::StartAllReduce() {
  const NamedSignature& signature = call().signature;
  ReduceOptions options{.op = signature.op,
                        .prescale = signature.prescale,
                        .postscale = signature.postscale,
                        .timeout = options_.timeout};
  const bool lacks_some = !step_->absent.empty();
  const bool averages = lacks_some && signature.op == ReduceOp::kAverage;
  if (averages) options.op = ReduceOp::kSum;
  if (averages && IsFloat(signature.dtype)) options.postscale /= contributors();
  ASSIGN_OR_RETURN(const NamedTensors tensors, Tensors());
  if (averages && !IsFloat(signature.dtype) && !buffers_.empty()) divided_ = tensors.out;
  work_ = communicator_.AllReduceAsync(tensors.in, tensors.out, options);
  return absl::OkStatus();
}

absl::StatusOr<NamedTensors> NamedCallRunner::GatherTensors(int64_t total) {
  const DType dtype = call().signature.dtype;
  const NamedBuffers* const buffers = buffers_.empty() ? nullptr : buffers_.front();
  if (on_gpu_) {
    auto tensors = gpu_->EnterGather(buffers, dtype, total);
    if (!tensors.ok()) return OfThisRank(tensors.status());
    return tensors;
  }
  std::vector<std::byte>& all = buffers != nullptr ? buffers->gathered->bytes : scratch_;
  all.resize(static_cast<size_t>(total * DTypeSize(dtype)));
  const ConstTensorView in = buffers != nullptr ? buffers->in : ConstTensorView(nullptr, 0, dtype);
  return NamedTensors{.in = in, .out = {all.data(), total, dtype}};
}

absl::Status NamedCallRunner::StartAllGather() {
  const std::vector<int64_t>& counts = call().counts;
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  ASSIGN_OR_RETURN(const NamedTensors tensors, GatherTensors(total));
  if (!buffers_.empty()) buffers_.front()->gathered->counts = counts;
  work_ = communicator_.AllGatherVAsync(tensors.in, counts, tensors.out, options_);
  return absl::OkStatus();
}

absl::Status NamedCallRunner::StartBroadcast() {
  ASSIGN_OR_RETURN(const NamedTensors tensors, Tensors());
  work_ = communicator_.BroadcastAsync(tensors.out, call().signature.root, options_);
  return absl::OkStatus();
}

// --- After a call ---

absl::Status NamedCallRunner::Divide() {
  if (divided_.count == 0) return absl::OkStatus();
  if (on_gpu_) return OfThisRank(gpu_->Divide(divided_, contributors()));
  const void* const source = divided_.data;
  device::Reduce({.dtype = divided_.dtype, .op = ReduceOp::kSum, .divisor = contributors()}, {&source, 1},
                 {&divided_.data, 1}, divided_.count);
  return absl::OkStatus();
}
}  // namespace gyre::internal
