// gyre-bench ps-steps: how fast a job trains through its parameter servers, with computation that is modelled and
// workers that are slower than others; beside what the model of collectives/pricing/served.h predicts.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/pricing/served.h"
#include "commands.h"
#include "gyre/gyre.h"
#include "gyre/status_macros.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "output_file.h"
#include "step/compute.h"
#include "timing.h"

namespace gyre::bench {

namespace {

using Seconds = std::chrono::duration<double>;

double Since(std::chrono::steady_clock::time_point start) {
  return Seconds(std::chrono::steady_clock::now() - start).count();
}

absl::StatusOr<Consistency> ParseConsistency(const std::string& name) {
  if (name == "bsp") return Consistency::kBsp;
  if (name == "ssp") return Consistency::kSsp;
  if (name == "async") return Consistency::kAsync;
  return absl::InvalidArgumentError(absl::StrCat("unknown consistency '", name, "'"));
}

// What is trained: its tensors, and how long a step of it computes.
struct Workload {
  std::vector<int64_t> counts;
  double compute_seconds = 0;

  int64_t count() const {
    int64_t sum = 0;
    for (const int64_t each : counts) sum += each;
    return sum;
  }
};

absl::StatusOr<Workload> WorkloadOf(const ServedStepsOptions& options) {
  if (options.model.empty()) return Workload{{options.elements}, options.compute_ms * 1e-3};
  ASSIGN_OR_RETURN(const Model model, MakeModel(options.model));
  Workload workload;
  for (const Parameter& each : model.parameters) workload.counts.push_back(each.count());
  workload.compute_seconds = (1 + kBackwardFactor) * model.forward_flops() * options.batch / (options.rate * 1e9);
  return workload;
}

class ServedRun {
 public:
  ServedRun(const ServedStepsOptions& options, const Workload& workload, Communicator& world)
      : options_(options),
        workload_(workload),
        slowdown_{.permanent = options.permanent,
                  .probability = options.probability,
                  .factor = options.factor,
                  .seed = static_cast<uint64_t>(options.seed)},
        world_(world) {
    for (const int64_t count : workload.counts) weights_.emplace_back(static_cast<size_t>(count));
  }

  absl::Status Start(Consistency consistency);

  // Seconds of a push and a pull by all workers at once, without computation; the median. Empty: none were asked for.
  absl::StatusOr<std::optional<double>> TimeExchange();

  // When workers' steps have ended, all of them, ascending; seconds.
  absl::StatusOr<std::vector<double>> Train();

  // The same by the model.
  absl::StatusOr<std::vector<double>> Predict(double exchange) const;

 private:
  absl::StatusOr<std::vector<double>> Gather(std::vector<double> ends);

  const ServedStepsOptions& options_;
  const Workload& workload_;
  const internal::Slowdown slowdown_;
  Communicator& world_;
  std::vector<std::vector<float>> weights_;
  std::unique_ptr<ParameterServerClient> client_;
};

absl::Status ServedRun::Start(Consistency consistency) {
  ParameterServerOptions servers{
      .consistency = consistency, .snapshot_interval = std::chrono::hours(1), .retain_bytes = 0};
  if (consistency == Consistency::kSsp) servers.staleness = options_.staleness;
  ASSIGN_OR_RETURN(client_, ParameterServerClient::Create(world_, Sgd{}, servers));
  for (size_t i = 0; i < weights_.size(); ++i) {
    RETURN_IF_ERROR(client_->Register(absl::StrCat("parameter ", i), weights_[i]).status());
  }
  return client_->Start();
}

absl::StatusOr<std::optional<double>> ServedRun::TimeExchange() {
  std::vector<double> samples(static_cast<size_t>(options_.exchanges));
  RETURN_IF_ERROR(client_->PushPull());  // memory that has never been touched is slower
  for (double& sample : samples) {
    RETURN_IF_ERROR(world_.Barrier());
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(client_->PushPull());
    sample = Since(start);
  }
  if (samples.empty()) return std::nullopt;
  RETURN_IF_ERROR(world_.AllReduce(samples, {.op = ReduceOp::kMax}));
  return Summarize(std::move(samples)).median;
}

// Whoever is done leaves: servers miss it after a second, and the others, who are past the window by then, go on.
absl::StatusOr<std::vector<double>> ServedRun::Train() {
  Compute compute(ComputeKind::kSleep, 1);  // of seconds
  std::vector<double> ends;
  RETURN_IF_ERROR(world_.Barrier());
  const auto start = std::chrono::steady_clock::now();
  for (int64_t step = 0;; ++step) {
    compute.Begin();
    compute.Advance(workload_.compute_seconds * internal::SlowdownOf(slowdown_, world_.rank(), step));
    compute.Finish();
    if (Since(start) > options_.seconds) break;
    RETURN_IF_ERROR(client_->PushPull());
    if (Since(start) > options_.seconds) break;
    ends.push_back(Since(start));
  }
  client_.reset();
  return Gather(std::move(ends));
}

absl::StatusOr<std::vector<double>> ServedRun::Gather(std::vector<double> ends) {
  constexpr double kNone = -1;
  std::array<int64_t, 1> most = {std::ssize(ends)};
  RETURN_IF_ERROR(world_.AllReduce(most, {.op = ReduceOp::kMax}));
  if (most[0] == 0) return absl::InvalidArgumentError("no step ended in time: give it more --seconds");
  ends.resize(static_cast<size_t>(most[0]), kNone);
  std::vector<double> all(ends.size() * static_cast<size_t>(world_.size()));
  RETURN_IF_ERROR(world_.AllGather(std::span<const double>(ends), std::span<double>(all)));
  std::erase(all, kNone);
  std::ranges::sort(all);
  return all;
}

absl::StatusOr<std::vector<double>> ServedRun::Predict(double exchange) const {
  internal::ServedQuestion question{.workers = world_.size(),
                                    .compute_seconds = workload_.compute_seconds,
                                    .slowdown = slowdown_,
                                    .link_seconds = exchange / world_.size(),
                                    .server_seconds = exchange / world_.size(),
                                    .most_steps = 1'000'000,
                                    .most_seconds = options_.seconds};
  if (options_.consistency == "ssp") question.bound = options_.staleness;
  if (options_.consistency == "async") question.bound = std::nullopt;
  return internal::ServedSteps(question);
}

double RateOf(const std::vector<double>& ends) {
  return ends.empty() ? 0 : static_cast<double>(ends.size()) / ends.back();
}

absl::Status Show(const ServedStepsOptions& options, const Workload& workload, int workers,
                  std::optional<double> exchange, const std::vector<double>& ends,
                  const std::optional<std::vector<double>>& predicted) {
  const std::string consistency =
      options.consistency == "ssp" ? absl::StrCat("ssp ", options.staleness) : options.consistency;
  nlohmann::ordered_json line = {{"lib", "gyre"},
                                 {"op", "ps_steps"},
                                 {"model", options.model},
                                 {"bytes", workload.count() * 4},
                                 {"workers", workers},
                                 {"consistency", consistency},
                                 {"compute_ms", workload.compute_seconds * 1e3},
                                 {"batch", {}},
                                 {"permanent", options.permanent},
                                 {"probability", options.probability},
                                 {"factor", options.factor},
                                 {"steps", ends.size()},
                                 {"steps_per_s", RateOf(ends)},
                                 {"images_per_s", {}},
                                 {"exchange_ms", {}},
                                 {"predicted_steps_per_s", {}}};
  absl::PrintF("# %d workers, %.1f MB, %.1f ms of computation, %s\n", workers,
               static_cast<double>(workload.count()) * 4e-6, workload.compute_seconds * 1e3, consistency);
  absl::PrintF("  %d steps of all, %.2f a second", ends.size(), RateOf(ends));
  if (!options.model.empty()) {
    line["batch"] = options.batch;
    line["images_per_s"] = RateOf(ends) * options.batch;
  }
  if (predicted) {
    line["exchange_ms"] = *exchange * 1e3;
    line["predicted_steps_per_s"] = RateOf(*predicted);
    absl::PrintF("; predicted %.2f, from an exchange of %.2f ms", RateOf(*predicted), *exchange * 1e3);
  }
  absl::PrintF("\n");
  ASSIGN_OR_RETURN(const OutputFile json, OpenOutputFile(options.json));
  if (json != nullptr) absl::FPrintF(json.get(), "%s\n", line.dump());
  return absl::OkStatus();
}

}  // namespace

absl::Status RunServedSteps(const ServedStepsOptions& options) {
  ASSIGN_OR_RETURN(const Consistency consistency, ParseConsistency(options.consistency));
  ASSIGN_OR_RETURN(const Workload workload, WorkloadOf(options));
  ASSIGN_OR_RETURN(auto runtime, Runtime::Create());
  ServedRun run(options, workload, runtime->world());
  RETURN_IF_ERROR(run.Start(consistency));
  ASSIGN_OR_RETURN(const std::optional<double> exchange, run.TimeExchange());
  ASSIGN_OR_RETURN(const std::vector<double> ends, run.Train());
  if (runtime->world().rank() != 0) return absl::OkStatus();
  std::optional<std::vector<double>> predicted;
  if (exchange) {
    ASSIGN_OR_RETURN(predicted, run.Predict(*exchange));
  }
  return Show(options, workload, runtime->world().size(), exchange, ends, predicted);
}

}  // namespace gyre::bench
