// The agent protocol's messages (launch/agent_protocol.h) about what ranks do and use. kDataLoss for what is malformed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "launch/rank_report.h"
#include "launch/rank_watch.h"

namespace gyre::launch {

std::string EncodeSettings(const WatchSettings& settings);
absl::StatusOr<WatchSettings> DecodeSettings(std::string_view payload);

std::string EncodeReport(const RankReport& report);
absl::StatusOr<RankReport> DecodeReport(std::string_view payload);

struct UsageMessage {
  TimePoint when{};  // of the agent's clock
  std::vector<RankUsage> ranks;
};
std::string EncodeUsage(const UsageMessage& usage);
absl::StatusOr<UsageMessage> DecodeUsage(std::string_view payload);

}  // namespace gyre::launch
