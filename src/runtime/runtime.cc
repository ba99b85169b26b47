#include "gyre/runtime.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/environment.h"
#include "base/process_mark.h"
#include "base/status.h"
#include "runtime/composition.h"
#include "runtime/reporter.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Create(const RuntimeOptions& options) {
  const Environment environment = ProcessEnvironment();
  ASSIGN_OR_RETURN(const Config config, LoadConfig(options, environment));
  ASSIGN_OR_RETURN(auto state, internal::RuntimeState::Join(config, environment));
  auto reporter = std::make_unique<internal::Reporter>(config.report_fd, config.rank.value_or(0));
  std::unique_ptr<Runtime> runtime(new Runtime(state, std::move(reporter)));
  internal::ClockOffset offset;
  if (state->needs_one_clock()) {
    ASSIGN_OR_RETURN(offset, internal::MeasureClockOffset(runtime->world()));
  }
  RETURN_IF_ERROR(state->Observe(offset));
  return runtime;
}

Runtime::Runtime(std::shared_ptr<internal::RuntimeState> state, std::unique_ptr<internal::Reporter> reporter)
    : state_(std::move(state)),
      reporter_(std::move(reporter)),
      world_(new Communicator(std::make_shared<internal::CommunicatorState>(state_, state_->world()))) {}

Runtime::~Runtime() {
  Shutdown();
  if (state_->process().forked()) KeepUntilExit(state_);
}

Communicator& Runtime::world() {
  return *world_;
}

bool Runtime::rejoined() const {
  return state_->apart();
}

absl::StatusOr<Buffer> Runtime::Allocate(int64_t bytes) {
  const auto& arena = state_->node()->arena();
  ASSIGN_OR_RETURN(std::byte* const data, arena->Allocate(bytes));
  return Buffer(arena, data, bytes);
}

absl::StatusOr<Buffer> Runtime::Allocate(int64_t bytes, const Device& device) {
  if (device.gpu < -1) return absl::InvalidArgumentError(absl::StrCat("there is no GPU ", device.gpu));
  if (!device.on_gpu()) return Allocate(bytes);
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("cannot allocate ", bytes, " bytes"));
  RETURN_IF_ERROR(state_->process().Check());
  ASSIGN_OR_RETURN(const internal::OpenedGpu opened, state_->gpus().Get(device.gpu));
  ASSIGN_OR_RETURN(std::shared_ptr<void> memory, internal::AllocateOn(opened.memory, bytes));
  return Buffer(std::move(memory), bytes, device);
}

std::optional<NetworkModel> Runtime::network_model() const {
  const internal::PathModel* const model = state_->network_model();
  if (model == nullptr) return std::nullopt;
  return NetworkModel{.latency_us = model->latency * 1e6,
                      .gigabits_per_second = model->bytes_per_second * 8e-9,
                      .reduced_gigabytes_per_second = model->reduced_per_second * 1e-9};
}

std::optional<int64_t> Runtime::bytes_sent() const {
  return state_->bytes_sent();
}

absl::Status Runtime::Report(const JobReport& report) {
  RETURN_IF_ERROR(state_->process().Check());
  return reporter_->Report(report);
}

void Runtime::Shutdown() {
  state_->Shutdown();
}

}  // namespace gyre
