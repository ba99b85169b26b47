#include "runtime/parameter_server_state.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/call.h"
#include "runtime/compressor.h"

namespace gyre {

namespace {

constexpr int64_t kMostRetained = 4096;

}  // namespace

ParameterServerClient::State::State(ps::ClientOptions options, const ParameterServerOptions& given,
                                    Consistency consistency, std::chrono::milliseconds timeout, internal::Gpus& gpus)
    : options_(std::move(options)),
      given_(given),
      consistency_(consistency),
      timeout_(timeout),
      gpu_(gpus),
      rows_(gpu_, options_.worker.worker) {
  if (options_.setup.rule) {
    rate_ = std::visit([](const auto& rule) { return rule.learning_rate; }, *options_.setup.rule);
  }
}

TimePoint ParameterServerClient::State::Deadline() const {
  return DeadlineAfter(std::chrono::steady_clock::now(), timeout_);
}

absl::Status ParameterServerClient::State::CheckStarted() const {
  RETURN_IF_ERROR(process_.Check());
  return client_ != nullptr ? absl::OkStatus() : absl::FailedPreconditionError("Start has not been called");
}

absl::Status ParameterServerClient::State::CheckPulled() const {
  RETURN_IF_ERROR(CheckStarted());
  if (!to_be_sent_) return absl::OkStatus();
  return absl::FailedPreconditionError("the step's values could not be sent to the GPU: call Pull again");
}

// --- Before Start ---

absl::StatusOr<int> ParameterServerClient::State::Register(std::string_view name, std::span<float> weights,
                                                           std::span<const int64_t> shape, const Device& device) {
  const bool has_memory = on_gpu_ != nullptr;  // of a Start that failed
  if (client_ != nullptr || has_memory) return absl::FailedPreconditionError("Register after Start");
  const auto same = [&](const auto& other) { return other.name == name; };
  if (name.empty() || std::ranges::any_of(options_.setup.tensors, same) || rows_.Has(name)) {
    return absl::InvalidArgumentError(absl::StrCat("weights named '", ToAbsl(name), "' are there twice, or unnamed"));
  }
  const double count = std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
  if (count != static_cast<double>(weights.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights '", ToAbsl(name), "' are ", weights.size(), ", their shape has ", count, " elements"));
  }
  if (device.gpu != -1) {
    const absl::Status opened = gpu_.Open(device).status();
    if (!opened.ok()) return Annotate(opened, absl::StrCat("weights \"", absl::CHexEscape(ToAbsl(name)), "\""));
  }
  const bool covered = internal::IsCovered(
      compression(), {.name = std::string(name), .shape = {shape.begin(), shape.end()}, .count = std::ssize(weights)});
  options_.worker.compression.dense.push_back(!covered);
  options_.setup.tensors.push_back({std::string(name), std::ssize(weights)});
  const auto on_gpu = std::ranges::count_if(tensors_, [](const Tensor& tensor) { return tensor.device.on_gpu(); });
  tensors_.push_back(
      {.weights = weights, .device = device, .gradient = elements_, .on_gpu = static_cast<size_t>(on_gpu)});
  elements_ += weights.size();
  return static_cast<int>(tensors_.size()) - 1;
}

absl::StatusOr<int> ParameterServerClient::State::RegisterTable(std::string_view name, int64_t rows, int64_t columns,
                                                                const RowInitializer& first) {
  if (client_ != nullptr) return absl::FailedPreconditionError("RegisterTable after Start");
  const auto* const dgc = std::get_if<Dgc>(&options_.worker.compression.compression);
  if (dgc != nullptr && dgc->momentum != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", ToAbsl(name), ": with a dgc workers apply the momentum, but not to rows: use another compression"));
  }
  const auto same = [&](const auto& other) { return other.name == name; };
  if (std::ranges::any_of(options_.setup.tensors, same)) {
    return absl::InvalidArgumentError(absl::StrCat("a table named '", ToAbsl(name), "' is there twice"));
  }
  return rows_.Add({.name = std::string(name), .rows = rows, .columns = columns, .first = first});
}

// --- Start ---

// What is kept of pushes: weights and tables have half of it each, where there are both.
void ParameterServerClient::State::ShareRetained() {
  const auto bytes = static_cast<int64_t>(elements_ * sizeof(float));
  const auto tables = static_cast<int64_t>(rows_.tables().size() * options_.servers.size());
  const int64_t share = tables > 0 && bytes > 0 ? given_.retain_bytes / 2 : given_.retain_bytes;
  options_.worker.retain = static_cast<size_t>(std::min(share / std::max<int64_t>(1, bytes), kMostRetained));
  if (tables > 0) options_.worker.retain_row_bytes = static_cast<size_t>(share / tables);
}

// For gradients and, of weights on a GPU, for these; with their values where they may become the servers'.
absl::Status ParameterServerClient::State::TakeMemory(TimePoint deadline) {
  std::vector<internal::ServedOnGpu::Tensor> tensors;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    if (!tensor.device.on_gpu()) continue;
    tensors.push_back({.name = options_.setup.tensors[i].name,
                       .weights = tensor.weights,
                       .stream = tensor.device.stream,
                       .gradient = tensor.gradient});
  }
  if (tensors.empty()) {
    host_gradients_.resize(elements_);
    gradients_ = host_gradients_;
    return absl::OkStatus();
  }
  if (on_gpu_ == nullptr) {
    ASSIGN_OR_RETURN(on_gpu_,
                     internal::ServedOnGpu::Create(gpu_.gpu(), std::move(tensors), elements_, options_.worker.worker));
  }
  gradients_ = on_gpu_->gradients();
  return options_.worker.has_first_values ? on_gpu_->FetchWeights(deadline) : absl::OkStatus();
}

std::vector<std::span<float>> ParameterServerClient::State::WeightsOnHost() const {
  std::vector<std::span<float>> weights;
  for (const Tensor& tensor : tensors_) {
    weights.push_back(tensor.device.on_gpu() ? on_gpu_->mirror(tensor.on_gpu) : tensor.weights);
  }
  return weights;
}

absl::Status ParameterServerClient::State::Start() {
  RETURN_IF_ERROR(process_.Check());
  if (client_ != nullptr) return absl::FailedPreconditionError("Start was called before");
  const TimePoint deadline = Deadline();
  RETURN_IF_ERROR(TakeMemory(deadline));
  ShareRetained();
  options_.setup.tables = rows_.tables();
  ASSIGN_OR_RETURN(client_, ps::Client::Create(options_, WeightsOnHost()));
  return Pull(deadline);
}

// --- Steps ---

std::span<float> ParameterServerClient::State::gradient(int index) const {
  const Tensor& tensor = at(index);
  if (tensor.device.on_gpu()) return on_gpu_->gradient(tensor.on_gpu);
  return gradients_.subspan(tensor.gradient, tensor.weights.size());
}

std::string ParameterServerClient::State::NameOf(int index) const {
  const std::string& name = options_.setup.tensors[static_cast<size_t>(index)].name;
  return absl::StrCat("the gradient of \"", absl::CHexEscape(name), "\"");
}

absl::Status ParameterServerClient::State::Give(int index, std::span<const float> gradient, const Device& device) {
  const Tensor& tensor = at(index);
  if (internal::IsPerThread(device)) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(index), " was given on ", internal::kPerThreadText));
  }
  if (device.gpu != tensor.device.gpu) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(index), " was given on ", internal::NameOfDevice(device),
                                                   "; its weights are on ", internal::NameOfDevice(tensor.device)));
  }
  if (device.on_gpu()) return on_gpu_->Give(tensor.on_gpu, gradient, device.stream);
  std::ranges::copy(gradient, this->gradient(index).begin());
  return absl::OkStatus();
}

absl::Status ParameterServerClient::State::GiveZeros(int index) {
  if (at(index).device.on_gpu()) return on_gpu_->GiveZeros(at(index).on_gpu);
  std::ranges::fill(gradient(index), 0.0f);
  return absl::OkStatus();
}

absl::Status ParameterServerClient::State::Push(TimePoint deadline, float scale) {
  RETURN_IF_ERROR(CheckPulled());
  // Forgets them, also where it fails: who pushes again gives them again, all or none.
  ASSIGN_OR_RETURN(std::vector<ps::Floats> rows, rows_.Take(static_cast<int>(options_.servers.size()), deadline));
  int64_t row_bytes = 0;
  for (const ps::Floats& packed : rows) row_bytes += static_cast<int64_t>(packed.bytes().size());
  if (on_gpu_ != nullptr) RETURN_IF_ERROR(on_gpu_->FetchGradients(deadline));
  if (scale != 1) {
    for (float& value : gradients_) value *= scale;
  }
  RETURN_IF_ERROR(client_->End(gradients_, rate_, std::move(rows)));
  const int64_t before = std::exchange(pushed_bytes_, client_->pushed_bytes());
  if (pushed_bytes_ > before) pushed_row_bytes_ += row_bytes;  // not a step that the others had gone past
  return absl::OkStatus();
}

absl::Status ParameterServerClient::State::Pull(TimePoint deadline) {
  RETURN_IF_ERROR(CheckStarted());
  if (!to_be_sent_) {
    if (on_gpu_ != nullptr) RETURN_IF_ERROR(on_gpu_->CheckStreams());  // before the step has begun
    ASSIGN_OR_RETURN(const uint64_t step, client_->Begin(deadline));
    step_ = static_cast<int64_t>(step);
    pulled_bytes_ = client_->pulled_bytes();
    to_be_sent_ = on_gpu_ != nullptr;
  }
  if (!to_be_sent_) return absl::OkStatus();
  RETURN_IF_ERROR(on_gpu_->SendWeights());
  to_be_sent_ = false;
  return absl::OkStatus();
}

absl::Status ParameterServerClient::State::PushPull(float scale) {
  const TimePoint deadline = Deadline();
  RETURN_IF_ERROR(Push(deadline, scale));
  return Pull(deadline);
}

absl::Status ParameterServerClient::State::PullRows(int table, std::span<const int64_t> ids, const TensorView& values) {
  RETURN_IF_ERROR(CheckPulled());
  RETURN_IF_ERROR(rows_.Fill(table, ids, values,
                             [&](std::span<float> to) { return client_->PullRows(table, ids, to, Deadline()); }));
  pulled_bytes_ = client_->pulled_bytes();
  return absl::OkStatus();
}

absl::Status ParameterServerClient::State::PushRows(int table, std::span<const int64_t> ids,
                                                    const ConstTensorView& gradients) {
  RETURN_IF_ERROR(CheckPulled());
  return rows_.Push(table, ids, gradients);
}

absl::Status ParameterServerClient::State::Wait() {
  RETURN_IF_ERROR(CheckStarted());
  return client_->Deliver(Deadline());
}

absl::Status ParameterServerClient::State::SetLearningRate(float rate) {
  if (!std::isfinite(rate) || rate < 0) {
    return absl::InvalidArgumentError(absl::StrCat("a learning rate of ", rate, " is not 0 or more"));
  }
  rate_ = rate;
  return absl::OkStatus();
}

}  // namespace gyre
