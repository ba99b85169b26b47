// gyre-bench advise: by allreduce or through parameter servers, and how many.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/pricing/advice.h"
#include "commands.h"
#include "gyre/status_macros.h"
#include "models/model.h"
#include "sizes.h"

namespace gyre::bench {

namespace {

absl::StatusOr<int64_t> BytesOf(const std::string& model) {
  if (std::ranges::find(ModelNames(), model) == ModelNames().end()) return ParseSize(model);
  ASSIGN_OR_RETURN(const Model network, MakeModel(model));
  return network.count() * static_cast<int64_t>(sizeof(float));
}

absl::StatusOr<int> HostsOf(const AdviseOptions& options) {
  if (options.workers == 0) return options.hosts;
  if (options.workers % options.workers_per_host == 0) return options.workers / options.workers_per_host;
  return absl::InvalidArgumentError(
      absl::StrCat(options.workers, " workers do not fill hosts of ", options.workers_per_host, " each"));
}

// Without loss: on the workers' hosts alone, and with hosts to spare where that is faster; then whether loss pays. Of
// what takes about as long allreduce, which a backward pass can hide.
void Recommend(const std::vector<internal::Advice>& advice) {
  constexpr double kClearly = 1.05;
  const auto first = [&](auto good) { return *std::ranges::find_if(advice, good); };  // allreduce is always there
  const internal::Advice any = first([](const internal::Advice& a) { return !a.lossy; });
  internal::Advice own = first([](const internal::Advice& a) { return !a.lossy && a.servers == 0; });
  const internal::Advice reduced =
      first([](const internal::Advice& a) { return !a.lossy && a.strategy.starts_with("allreduce"); });
  if (reduced.seconds < kClearly * own.seconds) own = reduced;
  std::printf("# take: %s", own.strategy.c_str());
  if (any.servers > 0 && any.seconds < own.seconds) {
    std::printf("; with %d hosts to spare: %s, %.2f times as fast", any.servers, any.strategy.c_str(),
                own.seconds / any.seconds);
  }
  // Of the lossy ones, too, first what needs no more hosts.
  double fastest = own.seconds;
  for (const bool more : {false, true}) {
    if (more) fastest = std::min(fastest, any.seconds);
    const auto best =
        std::ranges::find_if(advice, [&](const internal::Advice& a) { return a.lossy && (a.servers > 0) == more; });
    if (best == advice.end() || best->seconds >= fastest) continue;
    fastest = best->seconds;
    std::printf("; where loss is borne: %s, %.2f times as fast", best->strategy.c_str(), own.seconds / best->seconds);
    if (more) std::printf(", with %d hosts to spare", best->servers);
  }
  std::printf("\n");
}

}  // namespace

absl::Status RunAdvise(const AdviseOptions& options) {
  ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(options.model));
  ASSIGN_OR_RETURN(const int hosts, HostsOf(options));
  const internal::AdviceQuestion question{.model_bytes = static_cast<double>(bytes),
                                          .hosts = hosts,
                                          .workers_per_host = options.workers_per_host,
                                          .bytes_per_second = options.bandwidth * 1e9 / 8,
                                          .latency = options.latency * 1e-6,
                                          .reduced_bytes_per_second = options.reduction * 1e9,
                                          .most_servers = options.servers,
                                          .compression = options.compression,
                                          .sparse_share = options.sparse,
                                          .rounded_values = options.values,
                                          .coded_bytes_per_second = options.codec * 1e9};
  ASSIGN_OR_RETURN(const std::vector<internal::Advice> advice, internal::Advise(question));
  std::printf("# exchanging %lld bytes of gradients a step: %d hosts of %d workers, %g us, %g Gbit/s each way\n",
              static_cast<long long>(bytes), hosts, options.workers_per_host, options.latency, options.bandwidth);
  std::printf("# %-34s %14s %12s %10s\n", "strategy", "more hosts", "ms", "of best");
  for (const internal::Advice& row : advice) {
    const double best = advice.front().seconds;  // 0 where one worker has nobody to exchange with
    std::printf("  %-34s %14d %12.3f %10s\n", row.strategy.c_str(), row.servers, row.seconds * 1e3,
                best == 0 ? "-" : absl::StrFormat("%.2fx", row.seconds / best).c_str());
  }
  Recommend(advice);
  return absl::OkStatus();
}

}  // namespace gyre::bench
