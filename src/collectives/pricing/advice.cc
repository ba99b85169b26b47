#include "collectives/pricing/advice.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

constexpr bool kLossy = true;

absl::Status CheckQuestion(const AdviceQuestion& q) {
  const std::pair<const char*, bool> checks[] = {
      {"the model's bytes", q.model_bytes > 0},
      {"the number of hosts", q.hosts >= 1},
      {"the workers of a host", q.workers_per_host >= 1},
      {"the link's bandwidth", q.bytes_per_second > 0},
      {"the link's latency", q.latency >= 0},
      {"the rate of reduction", q.reduced_bytes_per_second > 0},
      {"the number of servers", q.most_servers >= 0},
      {"the share that compression leaves", q.compression > 0 && q.compression <= 1},
      {"the share of sparse gradients", q.sparse_share > 0 && q.sparse_share <= 1},
      {"the share of rounded values", q.rounded_values > 0 && q.rounded_values <= 1},
      {"the rate of a codec", q.coded_bytes_per_second > 0}};
  for (const auto& [what, good] : checks) {
    if (!good) return absl::InvalidArgumentError(absl::StrCat(what, " is out of its range"));
  }
  return absl::OkStatus();
}

// A ring's allreduce: of 2 (n - 1) steps each brings a block of 1 / n, of which half are reduced as they come.
double Ring(const AdviceQuestion& q, int ring, double bytes) {
  const double block = bytes / ring, steps = ring - 1;
  const double sent = block / q.bytes_per_second;
  return steps * (2 * q.latency + sent + std::max(sent, block / q.reduced_bytes_per_second));
}

// Within a host: all workers' gradients are added up there, once.
double WithinHost(const AdviceQuestion& q) {
  return q.workers_per_host == 1 ? 0 : q.workers_per_host * q.model_bytes / q.reduced_bytes_per_second;
}

// As a ring, in the fewest steps that there can be: halving and doubling, or a circulant.
double FewSteps(const AdviceQuestion& q, double bytes) {
  const double others = (q.hosts - 1.0) / q.hosts * bytes, sent = others / q.bytes_per_second;
  return 2 * std::ceil(std::log2(q.hosts)) * q.latency + sent + std::max(sent, others / q.reduced_bytes_per_second);
}

// Each host adds up its gradients first, its workers choose from a piece each, and all gather what hosts have chosen.
// Above kMostGathered hosts each adds up a region: what is chosen goes there, and the sums, of all hosts' choices, to
// all.
double Sparse(const AdviceQuestion& q) {
  constexpr int kMostGathered = 32;                   // as the library's
  constexpr double kValueBytes = 4, kEntryBytes = 6;  // an entry is a value and its position
  const double n = q.hosts, share = q.sparse_share * q.model_bytes, steps = std::ceil(std::log2(n));
  const double own = WithinHost(q) + q.model_bytes / q.workers_per_host / q.coded_bytes_per_second;
  if (q.hosts <= kMostGathered) {
    return own + n * share / q.reduced_bytes_per_second + 2 * steps * q.latency + (n - 1) * share / q.bytes_per_second;
  }
  const double chosen = q.sparse_share * kValueBytes / kEntryBytes, any = 1 - std::pow(1 - chosen, n);
  const double sums = q.model_bytes * std::min(1.0, kEntryBytes / kValueBytes * any);  // dense where that is smaller
  return own + (share + sums) * (1 / q.reduced_bytes_per_second + 1 / q.bytes_per_second) + 2 * (n + steps) * q.latency;
}

double InStep(const AdviceQuestion& q, const ServerLoad& load) {
  return load.latency_seconds + std::max(load.link_seconds, q.hosts * q.workers_per_host * load.server_seconds);
}

// Seconds a byte of the model that a worker encodes and decodes, and that a server decodes and adds up.
double CodedByWorker(const AdviceQuestion& q, const ServedShares& shares) {
  return ((shares.pushes < 1 ? 1 : 0) + (shares.values < 1 ? 1 : 0)) / q.coded_bytes_per_second;
}
double AddedByServer(const AdviceQuestion& q, const ServedShares& shares) {
  return 1 / q.reduced_bytes_per_second + (shares.pushes < 1 ? 1 / q.coded_bytes_per_second : 0);
}

}  // namespace

ServerLoad LoadOfServersApart(const AdviceQuestion& q, int servers, const ServedShares& shares) {
  const double part = q.model_bytes / servers, fuller = std::max(shares.pushes, shares.values);
  return {.link_seconds =
              q.model_bytes * std::max(q.workers_per_host * fuller / q.bytes_per_second, CodedByWorker(q, shares)),
          .server_seconds = part * std::max(fuller / q.bytes_per_second, AddedByServer(q, shares)),
          .latency_seconds = 2 * q.latency};
}

// Shares that have all links equally full: of a server on a host of its own, and of one beside workers.
ServerLoad LoadOfServersBeside(const AdviceQuestion& q, int more, const ServedShares& shares) {
  const double n = q.hosts, k = more, d = n * n + k * n - 2 * k;
  const double own = more == 0 ? 0 : 2 * (n - 1) / d, beside = (n - k) / d;
  const double elsewhere = q.model_bytes * (1 - beside), fuller = std::max(shares.pushes, shares.values);
  // Each way of a link carries pushes of its workers or to its server, and values.
  const double sent = (shares.pushes + shares.values) * (n - 1) / d * q.model_bytes / q.bytes_per_second;
  return {.link_seconds = std::max(q.workers_per_host * fuller * elsewhere / q.bytes_per_second,
                                   q.model_bytes * CodedByWorker(q, shares)),
          .server_seconds = std::max(sent, std::max(own, beside) * q.model_bytes * AddedByServer(q, shares)),
          .latency_seconds = 2 * q.latency};
}

absl::StatusOr<std::vector<Advice>> Advise(const AdviceQuestion& question) {
  const AdviceQuestion& q = question;
  RETURN_IF_ERROR(CheckQuestion(q));
  std::vector<Advice> advice;
  if (q.workers_per_host > 1) {
    advice.push_back({"allreduce, flat", 0, Ring(q, q.hosts * q.workers_per_host, q.model_bytes)});
  }
  advice.push_back({"allreduce, over hosts", 0, WithinHost(q) + Ring(q, q.hosts, q.model_bytes)});
  if (q.hosts > 1) {
    advice.push_back({"allreduce, over hosts, few steps", 0, WithinHost(q) + FewSteps(q, q.model_bytes)});
  }
  const double coded = 2 * q.model_bytes / q.coded_bytes_per_second;  // there and back
  if (q.compression < 1) {
    advice.push_back({"allreduce, over hosts, compressed", 0,
                      WithinHost(q) + coded + Ring(q, q.hosts, q.compression * q.model_bytes), kLossy});
  }
  if (q.sparse_share < 1 && q.hosts > 1) advice.push_back({"allreduce, sparse", 0, Sparse(q), kLossy});
  if (q.hosts > 1) advice.push_back({"servers beside workers", 0, InStep(q, LoadOfServersBeside(q, 0))});
  std::vector<std::pair<std::string, ServedShares>> coded_ways;
  for (const auto& [name, pushes] : {std::pair("compressed", q.compression), {"sparse pushes", q.sparse_share}}) {
    if (pushes < 1) coded_ways.push_back({absl::StrCat(", ", name), {pushes, q.rounded_values}});
  }
  for (const auto& [name, shares] : coded_ways) {
    if (q.hosts == 1) break;
    advice.push_back(
        {absl::StrCat("servers beside workers", name), 0, InStep(q, LoadOfServersBeside(q, 0, shares)), kLossy});
  }
  for (int k = 1; k <= q.most_servers; ++k) {
    advice.push_back({"servers apart", k, InStep(q, LoadOfServersApart(q, k))});
    for (const auto& [name, shares] : coded_ways) {
      advice.push_back({absl::StrCat("servers apart", name), k, InStep(q, LoadOfServersApart(q, k, shares)), kLossy});
    }
    if (q.hosts > 1 && k < q.hosts) {
      advice.push_back({"servers apart and beside workers", k, InStep(q, LoadOfServersBeside(q, k))});
    }
  }
  std::ranges::stable_sort(advice, {}, [](const Advice& a) { return std::tie(a.seconds, a.servers); });
  return advice;
}

}  // namespace gyre::internal
