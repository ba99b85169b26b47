#include "scaling/predict.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collectives/pricing/served.h"
#include "gyre/status_macros.h"

namespace gyre::bench {

namespace {

using internal::Advice;
using internal::AdviceQuestion;
using internal::ServerLoad;

constexpr char kFewSteps[] = "few steps", kDgc[] = "dgc";
constexpr int kRounds = 12;  // of steps that are simulated, a third of them to fall out of step

AdviceQuestion QuestionOf(const Model& model, const Setting& setting, int hosts) {
  AdviceQuestion question = setting.network;
  question.model_bytes = static_cast<double>(model.count()) * sizeof(float);
  question.hosts = hosts;
  question.most_servers = std::max(hosts, 2);
  return question;
}

// A worker's step through servers, on average: it pushes when its backward pass has ended, and waits for the values.
absl::StatusOr<double> ServedStep(const Strategy& strategy, const Setting& setting, const ServerLoad& load, int workers,
                                  double compute_seconds) {
  internal::ServedQuestion question{.workers = workers,
                                    .compute_seconds = compute_seconds,
                                    .link_seconds = load.link_seconds,
                                    .server_seconds = load.server_seconds,
                                    .latency_seconds = load.latency_seconds,
                                    .most_steps = int64_t{kRounds} * workers};
  if (strategy.consistency == "ssp") question.bound = setting.staleness;
  if (strategy.consistency == "async") question.bound = std::nullopt;
  ASSIGN_OR_RETURN(const std::vector<double> ends, internal::ServedSteps(question));
  return workers / internal::SteadyRate(ends, workers);
}

}  // namespace

std::vector<Strategy> Strategies(int workers_per_host) {
  using Servers = Strategy::Servers;
  constexpr char kOverHosts[] = "allreduce, over hosts";
  std::vector<Strategy> strategies;
  if (workers_per_host > 1) strategies.push_back({.name = "ring", .advice = "allreduce, flat"});
  strategies.push_back({.name = workers_per_host > 1 ? "hierarchical ring" : "ring", .advice = kOverHosts});
  strategies.push_back({.name = kFewSteps, .advice = "allreduce, over hosts, few steps"});
  strategies.push_back({.name = kDgc, .advice = "allreduce, sparse"});
  for (const char* const consistency : {"bsp", "ssp", "async"}) {
    const std::string after = consistency == std::string("bsp") ? "" : absl::StrCat(", ", consistency);
    const auto add = [&](const char* name, const char* advice, Servers servers, int count) {
      strategies.push_back({absl::StrCat(name, after), advice, servers, count, consistency});
    };
    add("1 server", "servers apart", Servers::kApart, 1);
    add("2 servers", "servers apart", Servers::kApart, 2);
    add("N servers", "servers apart", Servers::kApart, 0);
    add("servers beside workers", "servers beside workers", Servers::kBeside, 0);
  }
  return strategies;
}

double ComputeSeconds(const Model& model, const Setting& setting) {
  return (1 + kBackwardFactor) * model.forward_flops() * setting.batch / setting.flops_per_second;
}

double OverlappedSeconds(const Model& model, double compute_seconds, double exchange_seconds) {
  const double flops = (1 + kBackwardFactor) * model.forward_flops(), elements = static_cast<double>(model.count());
  double now = compute_seconds / (1 + kBackwardFactor), free = 0;
  for (const int i : BackwardOrder(model)) {
    const Parameter& parameter = model.parameters[static_cast<size_t>(i)];
    now += compute_seconds * kBackwardFactor * parameter.forward_flops / flops;
    free = std::max(now, free) + exchange_seconds * static_cast<double>(parameter.count()) / elements;
  }
  return std::max(now, free);
}

absl::StatusOr<std::vector<Prediction>> Predict(const Model& model, const Setting& setting, int workers) {
  const int each = setting.network.workers_per_host;
  if (workers < each || workers % each != 0) {
    return absl::InvalidArgumentError(absl::StrCat(workers, " workers do not fill hosts of ", each));
  }
  const AdviceQuestion question = QuestionOf(model, setting, workers / each);
  ASSIGN_OR_RETURN(const std::vector<Advice> advice, internal::Advise(question));
  const double compute = ComputeSeconds(model, setting);
  std::vector<Prediction> predictions;
  for (const Strategy& strategy : Strategies(each)) {
    const bool apart = strategy.servers == Strategy::Servers::kApart;
    const int servers = !apart ? 0 : strategy.count == 0 ? question.hosts : strategy.count;
    const auto row = std::ranges::find_if(
        advice, [&](const Advice& a) { return a.strategy == strategy.advice && a.servers == servers; });
    if (row == advice.end()) continue;
    Prediction prediction{.strategy = strategy.name,
                          .model = model.name,
                          .workers = workers,
                          .hosts = question.hosts,
                          .servers = servers,
                          .compute_seconds = compute,
                          .exchange_seconds = row->seconds};
    if (strategy.name == kDgc) {  // dense where that is sooner, as the library is
      for (const Prediction& dense : predictions) {
        if (dense.strategy == kFewSteps) prediction.exchange_seconds = std::min(row->seconds, dense.exchange_seconds);
      }
    }
    if (strategy.servers == Strategy::Servers::kNone) {
      prediction.step_seconds = OverlappedSeconds(model, compute, prediction.exchange_seconds);
    } else {
      const ServerLoad load =
          apart ? internal::LoadOfServersApart(question, servers) : internal::LoadOfServersBeside(question, 0);
      ASSIGN_OR_RETURN(prediction.step_seconds, ServedStep(strategy, setting, load, workers, compute));
    }
    prediction.images_per_second = workers * setting.batch / prediction.step_seconds;
    prediction.efficiency = compute / prediction.step_seconds;
    predictions.push_back(std::move(prediction));
  }
  return predictions;
}

}  // namespace gyre::bench
