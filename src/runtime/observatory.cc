#include "runtime/observatory.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

constexpr int kMostPort = 65535;

}  // namespace

absl::StatusOr<std::unique_ptr<Observatory>> Observatory::Open(const Config& config, const Watched& watched,
                                                               const Logger& logger) {
  if (!config.timeline && !config.metrics_port) return nullptr;
  std::unique_ptr<Observatory> observatory(new Observatory());
  if (config.metrics_port) {
    const int port = *config.metrics_port + watched.local_rank;
    if (port > kMostPort) return absl::InvalidArgumentError(absl::StrCat("GYRE_METRICS_PORT: no port ", port));
    observatory->metrics_ = std::make_unique<Metrics>(watched.rank, watched.size, watched.host);
    auto server = MetricsServer::Start({watched.address, static_cast<uint16_t>(port)},
                                       [metrics = observatory->metrics_.get()] { return metrics->Text(); });
    if (!server.ok()) return Annotate(server.status(), "GYRE_METRICS_PORT");
    observatory->server_ = *std::move(server);
  }
  if (config.timeline) {
    ASSIGN_OR_RETURN(observatory->timeline_,
                     Timeline::Open(absl::StrCat(*config.timeline, ".", watched.rank), watched.track, logger));
  }
  return observatory;
}

void Observatory::Ended(const Observed& observed) {
  if (metrics_ != nullptr) metrics_->Count(observed);
  if (timeline_ != nullptr) timeline_->Record(observed);
}

}  // namespace gyre::internal
