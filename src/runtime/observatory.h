// Observatory: what of a rank can be watched from outside: a timeline in a file (GYRE_TIMELINE), and counters over HTTP
// (GYRE_METRICS_PORT).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/config.h"
#include "base/log.h"
#include "collectives/observer.h"
#include "runtime/metrics.h"
#include "runtime/metrics_server.h"
#include "runtime/timeline.h"

namespace gyre::internal {

// Which rank is watched, and where.
struct Watched {
  int rank = 0, size = 1;
  int host = 0;         // its number
  int local_rank = 0;   // on its host
  std::string address;  // where metrics are served: an address of this machine
  TimelineTrack track;  // for the timeline
};

class Observatory final : public CallObserver {
 public:
  // Null where the configuration asks for nothing. Errors name the variable.
  static absl::StatusOr<std::unique_ptr<Observatory>> Open(const Config& config, const Watched& watched,
                                                           const Logger& logger);

  void Ended(const Observed& observed) override;

 private:
  Observatory() = default;

  std::unique_ptr<Metrics> metrics_;       // null, as are the next two, where it was not asked for
  std::unique_ptr<MetricsServer> server_;  // of metrics_
  std::unique_ptr<Timeline> timeline_;
};

}  // namespace gyre::internal
