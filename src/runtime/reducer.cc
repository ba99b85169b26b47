#include "gyre/reducer.h"

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/process_mark.h"
#include "base/status.h"
#include "runtime/reducer_state.h"

namespace gyre {

namespace {

absl::Status Check(const ReducerOptions& options) {
  if (options.op != ReduceOp::kAverage && options.op != ReduceOp::kSum) {
    return absl::InvalidArgumentError("a reducer's op must be average or sum");
  }
  if (!std::isfinite(options.prescale) || !std::isfinite(options.postscale)) {
    return absl::InvalidArgumentError("prescale and postscale must be finite");
  }
  if (options.max_norm && !(*options.max_norm > 0 && std::isfinite(*options.max_norm))) {
    return absl::InvalidArgumentError("max_norm must be positive and finite");
  }
  if (options.tune && (options.bucket_bytes || !options.plan.empty())) {
    return absl::InvalidArgumentError("tune has nothing to try where a plan or bucket_bytes are given");
  }
  if (options.accumulate < 1) return absl::InvalidArgumentError("accumulate must be 1 or more");
  if (options.bucket_bytes && *options.bucket_bytes < 1) {
    return absl::InvalidArgumentError("bucket_bytes must be 1 or more");
  }
  if (options.timeout && options.timeout->count() <= 0) return absl::InvalidArgumentError("timeout must be positive");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<GradientReducer>> GradientReducer::Create(Communicator& communicator,
                                                                         const ReducerOptions& options) {
  RETURN_IF_ERROR(Check(options));
  const std::string& variable = communicator.state_->runtime().config().compression;
  ASSIGN_OR_RETURN(internal::CompressionRequest compression, internal::RequestOf(options, variable));
  std::vector<int> all(static_cast<size_t>(communicator.size()));
  std::iota(all.begin(), all.end(), 0);
  ASSIGN_OR_RETURN(auto own, communicator.Split(all, {.timeout = options.timeout}));
  auto state = std::make_shared<State>(std::move(own), options, std::move(compression));
  return std::unique_ptr<GradientReducer>(new GradientReducer(std::move(state)));
}

GradientReducer::GradientReducer(std::shared_ptr<State> state) : state_(std::move(state)) {}

GradientReducer::~GradientReducer() {
  if (state_->process().forked()) {
    KeepUntilExit(state_);
  } else {
    state_->Close();
  }
}

absl::StatusOr<int> GradientReducer::Register(std::string_view name, std::span<const int64_t> shape, DType dtype,
                                              const Device& device) {
  return state_->Register(name, shape, dtype, device);
}

absl::StatusOr<int> GradientReducer::RegisterRows(std::string_view name, std::span<const int64_t> shape, DType dtype,
                                                  const Device& device) {
  return state_->RegisterRows(name, shape, dtype, device);
}

absl::Status GradientReducer::Start() {
  return state_->Start();
}

TensorView GradientReducer::gradient(int index) const {
  return state_->gradient(index);
}

TensorView GradientReducer::result(int index) const {
  return state_->result(index);
}

absl::Status GradientReducer::Ready(int index) {
  return state_->Give(index, nullptr, false);
}

absl::Status GradientReducer::Ready(int index, TensorView view) {
  return state_->Give(index, &view, false);
}

absl::Status GradientReducer::Missing(int index) {
  return state_->Give(index, nullptr, true);
}

absl::Status GradientReducer::ReadyRows(int index, std::span<const int64_t> rows, ConstTensorView values) {
  return state_->GiveRows(index, {rows, values});
}

RowsView GradientReducer::result_rows(int index) const {
  return state_->result_rows(index);
}

absl::Status GradientReducer::ScatterRows(int index, TensorView dense) const {
  return state_->ScatterRows(index, dense);
}

absl::StatusOr<bool> GradientReducer::WaitFor(int index) {
  return state_->WaitFor(index);
}

absl::StatusOr<StepSummary> GradientReducer::Wait() {
  return state_->Wait();
}

Compression GradientReducer::compression() const {
  return state_->compression();
}

bool GradientReducer::carries_momentum(int index) const {
  return state_->carries_momentum(index);
}

std::vector<std::byte> GradientReducer::SaveCompression() const {
  return state_->SaveCompression();
}

absl::Status GradientReducer::RestoreCompression(std::span<const std::span<const std::byte>> saved) {
  return state_->RestoreCompression(saved);
}

Communicator& GradientReducer::communicator() const {
  return state_->communicator();
}

int GradientReducer::size() const {
  return state_->size();
}

bool GradientReducer::planned() const {
  return state_->planned();
}

std::string GradientReducer::plan() const {
  return state_->plan();
}

}  // namespace gyre
