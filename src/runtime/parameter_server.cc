#include "gyre/parameter_server.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/process_mark.h"
#include "base/status.h"
#include "base/strategy.h"
#include "net/endpoint.h"
#include "ps/process/client.h"
#include "runtime/composition.h"
#include "runtime/compressor.h"
#include "runtime/momentum_correction.h"
#include "runtime/parameter_server_state.h"

namespace gyre {

namespace {

constexpr int64_t kDefaultStaleness = 4;

absl::Status Check(const ParameterServerOptions& options) {
  if (options.staleness.value_or(0) < 0 || options.local_steps.value_or(0) < 0) {
    return absl::InvalidArgumentError("staleness and local_steps must be 0 or more");
  }
  if (options.local_steps.value_or(0) > kMostLocalSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat("local_steps is ", *options.local_steps, "; it may be ", kMostLocalSteps, " at most"));
  }
  if (options.snapshot_interval.count() < 1 || options.retain_bytes < 0) {
    return absl::InvalidArgumentError("snapshot_interval must be 1 ms or more, and retain_bytes 0 or more");
  }
  if (options.replicas.value_or(0) < 0 || options.replicas.value_or(0) > 1) {
    return absl::InvalidArgumentError("replicas must be 0 or 1");
  }
  if (options.timeout && options.timeout->count() <= 0) return absl::InvalidArgumentError("timeout must be positive");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Endpoint>> ServersOf(const StrategyConfig& strategy) {
  if (strategy.servers.empty()) {
    return absl::FailedPreconditionError("the job has no parameter servers; start it with gyrerun --servers K");
  }
  std::vector<Endpoint> servers;
  for (const std::string& text : strategy.servers) {
    ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(text));
    if (!IsAddress(endpoint)) return absl::InvalidArgumentError(absl::StrCat("GYRE_STRATEGY: ", text, " is a name"));
    servers.push_back(std::move(endpoint));
  }
  return servers;
}

ps::Consistency ConsistencyOf(Consistency consistency, int64_t staleness) {
  switch (consistency) {
    case Consistency::kBsp: return {ps::Mode::kSynchronous};
    case Consistency::kSsp: return {ps::Mode::kStale, static_cast<uint64_t>(staleness)};
    case Consistency::kAsync: break;
  }
  return {ps::Mode::kAsynchronous};
}

compression::PayloadKind PayloadOf(ValueFormat format) {
  switch (format) {
    case ValueFormat::kF32: break;
    case ValueFormat::kF16: return compression::PayloadKind::kF16;
    case ValueFormat::kBF16: return compression::PayloadKind::kBF16;
    case ValueFormat::kInt8: return compression::PayloadKind::kInt8;
  }
  return compression::PayloadKind::kF32;
}

absl::StatusOr<Compression> CompressionOf(const ParameterServerOptions& options, const Config& config) {
  ASSIGN_OR_RETURN(const internal::CompressionRequest request,
                   internal::RequestOf({.compression = options.compression}, config.compression));
  if (std::holds_alternative<PowerSgd>(request.compression)) {
    return absl::InvalidArgumentError("powersgd is not for parameter servers: its factors are for allreduces");
  }
  if (internal::IsGlobal(request.compression)) {
    return absl::InvalidArgumentError("a global choice is of sums over the ranks: it is for allreduces");
  }
  return request.compression;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterServerClient>> ParameterServerClient::Create(
    Communicator& world, const std::optional<OptimizerConfig>& rule, const ParameterServerOptions& options) {
  RETURN_IF_ERROR(Check(options));
  if (rule) RETURN_IF_ERROR(Optimizer::Create(*rule, {}).status());
  internal::RuntimeState& runtime = world.state_->runtime();
  RETURN_IF_ERROR(runtime.process().Check());
  const Config& config = runtime.config();
  const internal::JobAccess job = runtime.job();
  if (world.size() != job.size) {
    return absl::InvalidArgumentError("parameter servers are for the world, not for some of its ranks");
  }
  ASSIGN_OR_RETURN(std::vector<Endpoint> servers, ServersOf(config.strategy));
  ASSIGN_OR_RETURN(const Compression compression, CompressionOf(options, config));
  ASSIGN_OR_RETURN(const auto servers_rule, internal::ServersRule(compression, rule));
  const ValueFormat values = options.values.value_or(config.strategy.values.value_or(ValueFormat::kF32));
  const Consistency consistency = options.consistency.value_or(config.strategy.consistency.value_or(Consistency::kBsp));
  const int64_t staleness = options.staleness.value_or(config.strategy.staleness.value_or(kDefaultStaleness));
  const int64_t local_steps = options.local_steps.value_or(config.strategy.local_steps.value_or(0));
  const int64_t replicas = options.replicas.value_or(config.strategy.replicas.value_or(0));
  if (replicas > 0 && servers.size() < 2) {
    return absl::InvalidArgumentError("a replica takes another server; start the job with gyrerun --servers 2 or more");
  }
  ps::ClientOptions client{.servers = std::move(servers),
                           .job_id = job.job_id,
                           .secret = job.secret,
                           .host = config.host_id.value_or(""),
                           .worker = {.worker = job.rank,
                                      .epoch = job.epoch,
                                      .incarnation = config.strategy.life,
                                      .local_steps = static_cast<uint64_t>(local_steps),
                                      .has_first_values = job.rank == 0,
                                      .compression = {.compression = compression, .workers = job.size}},
                           .setup = {.workers = job.size,
                                     .consistency = ConsistencyOf(consistency, staleness),
                                     .rule = servers_rule,
                                     .snapshot_interval = options.snapshot_interval,
                                     .values_as = PayloadOf(values),
                                     .replicas = static_cast<int>(replicas)}};
  if (!runtime.TakePlaceWithServers()) {
    return absl::FailedPreconditionError(
        "parameter servers hold one model a job, and this runtime has made a client for it before");
  }
  auto state = std::make_unique<State>(std::move(client), options, consistency,
                                       options.timeout.value_or(config.operation_timeout), runtime.gpus());
  return std::unique_ptr<ParameterServerClient>(new ParameterServerClient(std::move(state)));
}

ParameterServerClient::ParameterServerClient(std::unique_ptr<State> state) : state_(std::move(state)) {}

ParameterServerClient::~ParameterServerClient() {
  if (state_->process().forked()) KeepUntilExit(std::shared_ptr<void>(std::move(state_)));
}

absl::StatusOr<int> ParameterServerClient::Register(std::string_view name, std::span<float> weights) {
  const int64_t shape[] = {std::ssize(weights)};
  return state_->Register(name, weights, shape, {});
}

absl::StatusOr<int> ParameterServerClient::Register(std::string_view name, std::span<float> weights,
                                                    std::span<const int64_t> shape, const Device& device) {
  return state_->Register(name, weights, shape, device);
}

absl::StatusOr<int> ParameterServerClient::RegisterTable(std::string_view name, int64_t rows, int64_t columns,
                                                         const RowInitializer& first) {
  return state_->RegisterTable(name, rows, columns, first);
}

absl::Status ParameterServerClient::PullRows(int table, std::span<const int64_t> ids, TensorView values) {
  return state_->PullRows(table, ids, values);
}

absl::Status ParameterServerClient::PushRows(int table, std::span<const int64_t> ids, ConstTensorView gradients) {
  return state_->PushRows(table, ids, gradients);
}

absl::Status ParameterServerClient::Start() {
  return state_->Start();
}

std::span<float> ParameterServerClient::gradient(int index) const {
  return state_->gradient(index);
}

absl::Status ParameterServerClient::Push() {
  return state_->Push(state_->Deadline());
}

absl::Status ParameterServerClient::Pull() {
  return state_->Pull(state_->Deadline());
}

absl::Status ParameterServerClient::PushPull() {
  return state_->PushPull(1.0f);
}

absl::Status ParameterServerClient::Wait() {
  return state_->Wait();
}

absl::Status ParameterServerClient::SetLearningRate(float learning_rate) {
  return state_->SetLearningRate(learning_rate);
}

float ParameterServerClient::learning_rate() const {
  return state_->learning_rate();
}

int64_t ParameterServerClient::step() const {
  return state_->step();
}

int64_t ParameterServerClient::pushed_bytes() const {
  return state_->pushed_bytes();
}

int64_t ParameterServerClient::pushed_row_bytes() const {
  return state_->pushed_row_bytes();
}

int64_t ParameterServerClient::pulled_bytes() const {
  return state_->pulled_bytes();
}

const Compression& ParameterServerClient::compression() const {
  return state_->compression();
}

Consistency ParameterServerClient::consistency() const {
  return state_->consistency();
}

}  // namespace gyre
