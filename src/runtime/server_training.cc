#include "runtime/server_training.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/parameter_server_state.h"

namespace gyre::internal {

namespace {

absl::Status CheckForServers(const ReducerOptions& options) {
  const bool summed = options.op == ReduceOp::kSum || options.op == ReduceOp::kAverage;
  if (summed && !options.max_norm && !options.skip_non_finite && options.accumulate == 1 && options.plan.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "parameter servers take sums and averages, without max_norm, skip_non_finite, accumulate or plan");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerTraining>> ServerTraining::Create(Communicator& world, const OptimizerConfig& rule,
                                                                       const ReducerOptions& reduction,
                                                                       ParameterServerOptions servers) {
  RETURN_IF_ERROR(CheckForServers(reduction));
  if (!servers.timeout) servers.timeout = reduction.timeout;
  if (!servers.compression) servers.compression = reduction.compression;
  ASSIGN_OR_RETURN(auto client, ParameterServerClient::Create(world, rule, servers));
  double scale = reduction.prescale * reduction.postscale;
  // In kBsp servers average what is meant to be a sum.
  const bool averaged = client->consistency() == Consistency::kBsp;
  if (averaged && reduction.op == ReduceOp::kSum) scale *= world.size();
  return std::unique_ptr<ServerTraining>(new ServerTraining(std::move(client), scale));
}

absl::StatusOr<int> ServerTraining::Register(std::string_view name, std::span<float> weights,
                                             std::span<const int64_t> shape, const Device& device) {
  ASSIGN_OR_RETURN(const int index, client_->Register(name, weights, shape, device));
  ready_.push_back(false);
  return index;
}

absl::Status ServerTraining::Start() {
  RETURN_IF_ERROR(client_->Start());
  std::lock_guard lock(mutex_);
  started_ = true;
  return absl::OkStatus();
}

absl::Status ServerTraining::CheckAwaitedLocked(int index) const {
  if (index < 0 || index >= std::ssize(ready_)) {
    return absl::InvalidArgumentError(absl::StrCat("there is no parameter ", index, " of ", ready_.size()));
  }
  if (!started_) return absl::FailedPreconditionError(absl::StrCat("parameter ", index, " is ready before Start"));
  if (ready_[static_cast<size_t>(index)]) {
    return absl::FailedPreconditionError(absl::StrCat("parameter ", index, " is ready already"));
  }
  return absl::OkStatus();
}

absl::Status ServerTraining::CheckAwaited(int index) {
  std::lock_guard lock(mutex_);
  return CheckAwaitedLocked(index);
}

absl::Status ServerTraining::Ready(int index) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckAwaitedLocked(index));
  ready_[static_cast<size_t>(index)] = true;
  return absl::OkStatus();
}

absl::Status ServerTraining::ReadyCopy(int index, std::span<const float> gradient, const Device& device) {
  RETURN_IF_ERROR(CheckAwaited(index));
  const size_t own = client_->gradient(index).size();
  if (own != gradient.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a gradient of ", gradient.size(), " elements for parameter ", index, ", which has ", own));
  }
  RETURN_IF_ERROR(client_->state_->Give(index, gradient, device));
  return Ready(index);
}

absl::Status ServerTraining::Missing(int index) {
  RETURN_IF_ERROR(CheckAwaited(index));
  RETURN_IF_ERROR(client_->state_->GiveZeros(index));
  return Ready(index);
}

absl::Status ServerTraining::TakeAllReady() {
  std::lock_guard lock(mutex_);
  const auto absent = std::ranges::find(ready_, false);
  if (absent != ready_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter ", absent - ready_.begin(), " is neither ready nor missing"));
  }
  ready_.assign(ready_.size(), false);
  return absl::OkStatus();
}

absl::StatusOr<StepSummary> ServerTraining::Step() {
  const auto begin = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(TakeAllReady());
  StepSummary summary;
  for (int index = 0; index < std::ssize(ready_); ++index) {
    summary.bytes += static_cast<int64_t>(client_->gradient(index).size_bytes());
  }
  RETURN_IF_ERROR(client_->state_->PushPull(static_cast<float>(scale_)));
  summary.step = client_->step();
  const int64_t before = std::exchange(pushed_, client_->pushed_bytes());
  const int64_t rows_before = std::exchange(pushed_rows_, client_->pushed_row_bytes());
  const int64_t pushed = pushed_ - before, rows = pushed_rows_ - rows_before;
  if (!std::holds_alternative<NoCompression>(client_->compression())) {
    summary.compression = pushed - rows < summary.bytes ? CompressionUse::kAsForced : CompressionUse::kNoneFits;
    summary.compressed_bytes = pushed;
  }
  summary.bytes += rows;
  summary.exposed_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return summary;
}

}  // namespace gyre::internal
