// Predictions of how a model trains on many workers, by allreduce and through parameter servers: what the exchange of a
// step costs by collectives/pricing/advice.h, how it meets the computation, and how workers out of step share servers
// by collectives/pricing/served.h. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/pricing/advice.h"
#include "models/model.h"

namespace gyre::bench {

struct Setting {
  internal::AdviceQuestion network{};  // links, rates and codecs; without model, hosts and servers
  double flops_per_second = 1;         // of a worker
  int batch = 1;                       // samples a worker and step
  int staleness = 4;                   // of "ssp"
};

// A way to exchange gradients, as the report names it.
struct Strategy {
  std::string name;    // "ring", "1 server", "servers beside workers, async"
  std::string advice;  // how Advise names it
  enum class Servers { kNone, kApart, kBeside } servers = Servers::kNone;
  int count = 0;                    // of servers apart; 0: as many as hosts
  std::string consistency = "bsp";  // of servers: or "ssp", "async"
};

// With one worker a host a ring of all workers is one over hosts.
std::vector<Strategy> Strategies(int workers_per_host);

struct Prediction {
  std::string strategy;
  std::string model;
  int workers = 1;
  int hosts = 1;
  int servers = 0;               // on hosts of their own
  double compute_seconds = 0;    // of a step
  double exchange_seconds = 0;   // of a step, by itself, in step
  double step_seconds = 0;       // of a worker, on average
  double images_per_second = 0;  // of all workers; for text, sequences
  double efficiency = 0;         // of as many workers that need no exchange
};

// Seconds that a worker computes a step.
double ComputeSeconds(const Model& model, const Setting& setting);

// A step by allreduce: gradients are exchanged as the backward pass makes them, one after the other, the exchange of
// all of them taking `exchange_seconds`.
double OverlappedSeconds(const Model& model, double compute_seconds, double exchange_seconds);

// By each strategy that there is for so many: hosts are filled, `setting.network.workers_per_host` on each.
// kInvalidArgument: workers are no multiple of that, or fewer; or see Advise.
absl::StatusOr<std::vector<Prediction>> Predict(const Model& model, const Setting& setting, int workers);

}  // namespace gyre::bench
