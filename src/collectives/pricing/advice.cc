#include "collectives/pricing/advice.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

absl::Status Check(const AdviceQuestion& q) {
  const std::pair<const char*, bool> checks[] = {
      {"the model's bytes", q.model_bytes > 0},
      {"the number of hosts", q.hosts >= 1},
      {"the workers of a host", q.workers_per_host >= 1},
      {"the link's bandwidth", q.bytes_per_second > 0},
      {"the link's latency", q.latency >= 0},
      {"the rate of reduction", q.reduced_bytes_per_second > 0},
      {"the number of servers", q.most_servers >= 0},
      {"the share that compression leaves", q.compression > 0 && q.compression <= 1},
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

// To servers and back, each link carrying so many bytes at most each way, each server host reducing so many.
double ThereAndBack(const AdviceQuestion& q, double link_bytes, double reduced_bytes) {
  const double seconds = std::max(link_bytes / q.bytes_per_second, reduced_bytes / q.reduced_bytes_per_second);
  return 2 * q.latency + seconds + WithinHost(q);
}

// On k hosts of their own: a worker's link carries the model once each way, a server's n parts of 1 / k.
double Separate(const AdviceQuestion& q, int k) {
  const double served = q.hosts * q.model_bytes / k;
  return ThereAndBack(q, std::max(q.model_bytes, served), served);
}

// On all workers' hosts and k more, whose shares have all links equally full; k from 0 to n.
double Mixed(const AdviceQuestion& q, int k) {
  const double n = q.hosts, d = n * n + k * n - 2 * k;
  const double own = k == 0 ? 0 : 2 * (n - 1) / d, beside = (n - k) / d;
  return ThereAndBack(q, 2 * n * (n - 1) * q.model_bytes / d, n * q.model_bytes * std::max(own, beside));
}

}  // namespace

absl::StatusOr<std::vector<Advice>> Advise(const AdviceQuestion& question) {
  const AdviceQuestion& q = question;
  RETURN_IF_ERROR(Check(q));
  std::vector<Advice> advice;
  if (q.workers_per_host > 1) {
    advice.push_back({"allreduce, flat", 0, Ring(q, q.hosts * q.workers_per_host, q.model_bytes)});
  }
  advice.push_back({"allreduce, over hosts", 0, WithinHost(q) + Ring(q, q.hosts, q.model_bytes)});
  const double coded = 2 * q.model_bytes / q.coded_bytes_per_second;  // there and back
  if (q.compression < 1) {
    advice.push_back({"allreduce, over hosts, compressed", 0,
                      WithinHost(q) + coded + Ring(q, q.hosts, q.compression * q.model_bytes)});
  }
  if (q.hosts > 1) advice.push_back({"servers beside workers", 0, Mixed(q, 0)});
  for (int k = 1; k <= q.most_servers; ++k) {
    advice.push_back({"servers apart", k, Separate(q, k)});
    if (q.hosts > 1 && k < q.hosts) advice.push_back({"servers apart and beside workers", k, Mixed(q, k)});
  }
  std::ranges::stable_sort(advice, {}, [](const Advice& a) { return std::tie(a.seconds, a.servers); });
  return advice;
}

}  // namespace gyre::internal
