// gyre-bench advise: by allreduce or through parameter servers, and how many.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "collectives/pricing/advice.h"
#include "commands.h"
#include "gyre/status_macros.h"
#include "sizes.h"

namespace gyre::bench {

absl::Status RunAdvise(const AdviseOptions& options) {
  ASSIGN_OR_RETURN(const int64_t bytes, ParseSize(options.model));
  const internal::AdviceQuestion question{.model_bytes = static_cast<double>(bytes),
                                          .hosts = options.hosts,
                                          .workers_per_host = options.workers_per_host,
                                          .bytes_per_second = options.bandwidth * 1e9 / 8,
                                          .latency = options.latency * 1e-6,
                                          .reduced_bytes_per_second = options.reduction * 1e9,
                                          .most_servers = options.servers,
                                          .compression = options.compression,
                                          .coded_bytes_per_second = options.codec * 1e9};
  ASSIGN_OR_RETURN(const std::vector<internal::Advice> advice, internal::Advise(question));
  std::printf("# exchanging %lld bytes of gradients a step: %d hosts of %d workers, %g us, %g Gbit/s each way\n",
              static_cast<long long>(bytes), options.hosts, options.workers_per_host, options.latency,
              options.bandwidth);
  std::printf("# %-34s %14s %12s %10s\n", "strategy", "more hosts", "ms", "of best");
  for (const internal::Advice& row : advice) {
    std::printf("  %-34s %14d %12.3f %9.2fx\n", row.strategy.c_str(), row.servers, row.seconds * 1e3,
                row.seconds / advice.front().seconds);
  }
  return absl::OkStatus();
}

}  // namespace gyre::bench
