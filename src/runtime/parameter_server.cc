#include "gyre/parameter_server.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/strategy.h"
#include "net/endpoint.h"
#include "ps/process/client.h"
#include "runtime/composition.h"
#include "runtime/compressor.h"
#include "runtime/momentum_correction.h"

namespace gyre {

namespace {

constexpr int64_t kDefaultStaleness = 4;
constexpr int64_t kMostRetained = 4096;

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

class ParameterServerClient::State {
 public:
  State(ps::ClientOptions options, const ParameterServerOptions& given, Consistency consistency,
        std::chrono::milliseconds timeout)
      : options_(std::move(options)), given_(given), consistency_(consistency), timeout_(timeout) {
    if (options_.setup.rule) {
      rate_ = std::visit([](const auto& rule) { return rule.learning_rate; }, *options_.setup.rule);
    }
  }

  absl::StatusOr<int> Register(std::string_view name, std::span<float> weights, std::span<const int64_t> shape) {
    if (client_ != nullptr) return absl::FailedPreconditionError("Register after Start");
    const auto same = [&](const auto& other) { return other.name == name; };
    if (name.empty() || std::ranges::any_of(options_.setup.tensors, same) ||
        std::ranges::any_of(options_.setup.tables, same)) {
      return absl::InvalidArgumentError(absl::StrCat("weights named '", ToAbsl(name), "' are there twice, or unnamed"));
    }
    const double count = std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
    if (count != static_cast<double>(weights.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("weights '", ToAbsl(name), "' are ", weights.size(), ", their shape has ", count, " elements"));
    }
    const bool covered = internal::IsCovered(
        compression(),
        {.name = std::string(name), .shape = {shape.begin(), shape.end()}, .count = std::ssize(weights)});
    options_.worker.compression.dense.push_back(!covered);
    options_.setup.tensors.push_back({std::string(name), std::ssize(weights)});
    weights_.push_back(weights);
    return static_cast<int>(weights_.size()) - 1;
  }

  absl::StatusOr<int> RegisterTable(std::string_view name, int64_t rows, int64_t columns, const RowInitializer& first) {
    if (client_ != nullptr) return absl::FailedPreconditionError("RegisterTable after Start");
    const auto* const dgc = std::get_if<Dgc>(&options_.worker.compression.compression);
    if (dgc != nullptr && dgc->momentum != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table ", ToAbsl(name), ": with a dgc workers apply the momentum, but not to rows: use another compression"));
    }
    ps::Table table{.name = std::string(name), .rows = rows, .columns = columns, .first = first};
    RETURN_IF_ERROR(ps::Check(table));
    const auto same = [&](const auto& other) { return other.name == name; };
    if (std::ranges::any_of(options_.setup.tables, same) || std::ranges::any_of(options_.setup.tensors, same)) {
      return absl::InvalidArgumentError(absl::StrCat("a table named '", table.name, "' is there twice"));
    }
    options_.setup.tables.push_back(std::move(table));
    pushed_.emplace_back();
    return static_cast<int>(pushed_.size()) - 1;
  }

  absl::Status Start() {
    if (client_ != nullptr) return absl::FailedPreconditionError("Start was called before");
    size_t elements = 0;
    for (const auto& weights : weights_) {
      gradients_.emplace_back(elements, weights.size());
      elements += weights.size();
    }
    ShareRetained(static_cast<int64_t>(elements * sizeof(float)));
    gradient_.resize(elements);
    ASSIGN_OR_RETURN(client_, ps::Client::Create(options_, weights_));
    return Pull();
  }

  std::span<float> gradient(int index) {
    const auto [offset, count] = gradients_[static_cast<size_t>(index)];
    return std::span(gradient_).subspan(offset, count);
  }

  absl::Status Push() {
    RETURN_IF_ERROR(CheckStarted());
    auto packed = PackRows();
    for (Pushed& pushed : pushed_) {  // also where it fails: who pushes again gives them again, all or none
      pushed.ids.clear();
      pushed.gradients.clear();
    }
    RETURN_IF_ERROR(packed.status());
    int64_t row_bytes = 0;
    for (const ps::Floats& rows : *packed) row_bytes += static_cast<int64_t>(rows.bytes().size());
    RETURN_IF_ERROR(client_->End(gradient_, rate_, *std::move(packed)));
    const int64_t before = std::exchange(pushed_bytes_, client_->pushed_bytes());
    if (pushed_bytes_ > before) pushed_row_bytes_ += row_bytes;  // not a step that the others had gone past
    return absl::OkStatus();
  }

  absl::Status Pull() {
    RETURN_IF_ERROR(CheckStarted());
    ASSIGN_OR_RETURN(const uint64_t step, client_->Begin(Deadline()));
    step_ = static_cast<int64_t>(step);
    pulled_bytes_ = client_->pulled_bytes();
    return absl::OkStatus();
  }

  absl::Status PullRows(int table, std::span<const int64_t> ids, std::span<float> values) {
    RETURN_IF_ERROR(CheckRows(table, ids, values.size()));
    if (ids.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(client_->PullRows(table, ids, values, Deadline()));
    pulled_bytes_ = client_->pulled_bytes();
    return absl::OkStatus();
  }

  absl::Status PushRows(int table, std::span<const int64_t> ids, std::span<const float> gradients) {
    RETURN_IF_ERROR(CheckRows(table, ids, gradients.size()));
    Pushed& pushed = pushed_[static_cast<size_t>(table)];
    pushed.ids.insert(pushed.ids.end(), ids.begin(), ids.end());
    pushed.gradients.insert(pushed.gradients.end(), gradients.begin(), gradients.end());
    return absl::OkStatus();
  }

  absl::Status Wait() {
    RETURN_IF_ERROR(CheckStarted());
    return client_->Deliver(Deadline());
  }

  absl::Status SetLearningRate(float rate) {
    if (!std::isfinite(rate) || rate < 0) {
      return absl::InvalidArgumentError(absl::StrCat("a learning rate of ", rate, " is not 0 or more"));
    }
    rate_ = rate;
    return absl::OkStatus();
  }
  float learning_rate() const { return rate_; }
  Consistency consistency() const { return consistency_; }
  int64_t step() const { return step_; }
  int64_t pushed_bytes() const { return pushed_bytes_; }
  int64_t pushed_row_bytes() const { return pushed_row_bytes_; }
  int64_t pulled_bytes() const { return pulled_bytes_; }
  const Compression& compression() const { return options_.worker.compression.compression; }

 private:
  absl::Status CheckStarted() const {
    return client_ != nullptr ? absl::OkStatus() : absl::FailedPreconditionError("Start has not been called");
  }
  absl::Status CheckRows(int table, std::span<const int64_t> ids, size_t values) const {
    RETURN_IF_ERROR(CheckStarted());
    if (table < 0 || table >= std::ssize(pushed_)) {
      return absl::InvalidArgumentError(absl::StrCat("there is no table ", table, " of ", pushed_.size()));
    }
    const ps::Table& own = options_.setup.tables[static_cast<size_t>(table)];
    if (values != ids.size() * static_cast<size_t>(own.columns)) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", own.name, ": ", values, " values for ", ids.size(), " rows of ", own.columns));
    }
    for (const int64_t id : ids) {
      if (id >= 0 && id < own.rows) continue;
      return absl::InvalidArgumentError(absl::StrCat("table ", own.name, " of ", own.rows, " rows has no row ", id));
    }
    return absl::OkStatus();
  }

  // Of all tables, for each server.
  absl::StatusOr<std::vector<ps::Floats>> PackRows() const {
    std::vector<ps::Floats> rows;
    for (size_t table = 0; table < pushed_.size(); ++table) {
      ASSIGN_OR_RETURN(auto packed,
                       ps::PackRows(options_.setup.tables[table], static_cast<int>(options_.servers.size()),
                                    pushed_[table].ids, pushed_[table].gradients));
      std::ranges::move(packed, std::back_inserter(rows));
    }
    return rows;
  }

  // What is kept of pushes: weights and tables have half of it each, where there are both.
  void ShareRetained(int64_t bytes) {
    const auto tables = static_cast<int64_t>(pushed_.size() * options_.servers.size());
    const int64_t share = tables > 0 && bytes > 0 ? given_.retain_bytes / 2 : given_.retain_bytes;
    options_.worker.retain = static_cast<size_t>(std::min(share / std::max<int64_t>(1, bytes), kMostRetained));
    if (tables > 0) options_.worker.retain_row_bytes = static_cast<size_t>(share / tables);
  }

  TimePoint Deadline() const { return DeadlineAfter(std::chrono::steady_clock::now(), timeout_); }

  ps::ClientOptions options_;
  const ParameterServerOptions given_;
  const Consistency consistency_;
  const std::chrono::milliseconds timeout_;
  float rate_ = 0;
  int64_t step_ = 0;
  int64_t pushed_bytes_ = 0, pushed_row_bytes_ = 0, pulled_bytes_ = 0;
  std::vector<std::span<float>> weights_;             // by index
  std::vector<std::pair<size_t, size_t>> gradients_;  // by index: where in gradient_, and how many
  std::vector<float> gradient_;
  struct Pushed {
    std::vector<int64_t> ids;
    std::vector<float> gradients;
  };
  std::vector<Pushed> pushed_;  // by table, since the last Push
  std::unique_ptr<ps::Client> client_;
};

absl::StatusOr<std::unique_ptr<ParameterServerClient>> ParameterServerClient::Create(
    Communicator& world, const std::optional<OptimizerConfig>& rule, const ParameterServerOptions& options) {
  RETURN_IF_ERROR(Check(options));
  if (rule) RETURN_IF_ERROR(Optimizer::Create(*rule, {}).status());
  internal::RuntimeState& runtime = world.state_->runtime();
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
                                       options.timeout.value_or(config.operation_timeout));
  return std::unique_ptr<ParameterServerClient>(new ParameterServerClient(std::move(state)));
}

ParameterServerClient::ParameterServerClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
ParameterServerClient::~ParameterServerClient() = default;

absl::StatusOr<int> ParameterServerClient::Register(std::string_view name, std::span<float> weights) {
  const int64_t shape[] = {std::ssize(weights)};
  return state_->Register(name, weights, shape);
}

absl::StatusOr<int> ParameterServerClient::Register(std::string_view name, std::span<float> weights,
                                                    std::span<const int64_t> shape) {
  return state_->Register(name, weights, shape);
}

absl::StatusOr<int> ParameterServerClient::RegisterTable(std::string_view name, int64_t rows, int64_t columns,
                                                         const RowInitializer& first) {
  return state_->RegisterTable(name, rows, columns, first);
}

absl::Status ParameterServerClient::PullRows(int table, std::span<const int64_t> ids, std::span<float> values) {
  return state_->PullRows(table, ids, values);
}

absl::Status ParameterServerClient::PushRows(int table, std::span<const int64_t> ids,
                                             std::span<const float> gradients) {
  return state_->PushRows(table, ids, gradients);
}

absl::Status ParameterServerClient::Start() {
  return state_->Start();
}

std::span<float> ParameterServerClient::gradient(int index) const {
  return state_->gradient(index);
}

absl::Status ParameterServerClient::Push() {
  return state_->Push();
}

absl::Status ParameterServerClient::Pull() {
  return state_->Pull();
}

absl::Status ParameterServerClient::PushPull() {
  RETURN_IF_ERROR(state_->Push());
  return state_->Pull();
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
