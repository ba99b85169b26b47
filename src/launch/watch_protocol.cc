#include "launch/watch_protocol.h"

#include <bit>

#include "launch/malformed.h"
#include "net/bytes.h"

namespace gyre::launch {

namespace {

constexpr uint64_t kLongestSample = uint64_t{1} << 40;  // milliseconds

// What a report may leave out.
enum Given : uint8_t { kStep = 1, kSteps = 2, kLoss = 4 };

void Real(WireWriter& writer, double value) {
  writer.U64(std::bit_cast<uint64_t>(value));
}

double Real(WireReader& reader) {
  return std::bit_cast<double>(reader.U64());
}

}  // namespace

std::string EncodeSettings(const WatchSettings& settings) {
  return Written([&](WireWriter& writer) {
    writer.U8(static_cast<uint8_t>(settings.bind));
    writer.U8(static_cast<uint8_t>(settings.map));
    writer.U8(settings.report_bindings);
    writer.U64(static_cast<uint64_t>(settings.sample.count()));
  });
}

absl::StatusOr<WatchSettings> DecodeSettings(std::string_view payload) {
  WireReader reader(payload);
  const uint8_t bind = reader.U8();
  const uint8_t map = reader.U8();
  const bool report = reader.U8() != 0;
  const uint64_t sample = reader.U64();
  if (!reader.AtEnd() || bind > static_cast<uint8_t>(BindTo::kNuma) || map > static_cast<uint8_t>(MapBy::kNuma) ||
      sample > kLongestSample) {
    return Malformed("settings");
  }
  return WatchSettings{static_cast<BindTo>(bind), static_cast<MapBy>(map), report, std::chrono::milliseconds(sample)};
}

std::string EncodeReport(const RankReport& report) {
  return Written([&](WireWriter& writer) {
    writer.I32(report.rank);
    writer.U8(report.phase ? static_cast<uint8_t>(static_cast<int>(*report.phase) + 1) : 0);
    writer.Text(report.activity);
    writer.U8(
        static_cast<uint8_t>((report.step ? kStep : 0) | (report.steps ? kSteps : 0) | (report.loss ? kLoss : 0)));
    writer.U64(static_cast<uint64_t>(report.step.value_or(0)));
    writer.U64(static_cast<uint64_t>(report.steps.value_or(0)));
    Real(writer, report.loss.value_or(0));
  });
}

absl::StatusOr<RankReport> DecodeReport(std::string_view payload) {
  WireReader reader(payload);
  RankReport report;
  report.rank = reader.I32();
  const uint8_t phase = reader.U8();
  report.activity = reader.Text();
  const uint8_t given = reader.U8();
  const auto step = static_cast<int64_t>(reader.U64());
  const auto steps = static_cast<int64_t>(reader.U64());
  const double loss = Real(reader);
  if (!reader.AtEnd() || report.rank < 0 || step < 0 || steps < 0 || !IsActivity(report.activity)) {
    return Malformed("report");
  }
  if (phase != 0) {
    report.phase = static_cast<Phase>(phase - 1);
    if (report.phase != Phase::kDownloading && report.phase != Phase::kProcessing && report.phase != Phase::kStoring) {
      return Malformed("report: phase");
    }
  }
  if ((given & kStep) != 0) report.step = step;
  if ((given & kSteps) != 0) report.steps = steps;
  if ((given & kLoss) != 0) report.loss = loss;
  return report;
}

std::string EncodeUsage(const UsageMessage& usage) {
  return Written([&](WireWriter& writer) {
    const auto since = std::chrono::duration_cast<std::chrono::microseconds>(usage.when.time_since_epoch());
    writer.U64(static_cast<uint64_t>(since.count()));
    writer.U32(static_cast<uint32_t>(usage.ranks.size()));
    for (const RankUsage& rank : usage.ranks) {
      writer.I32(rank.rank);
      Real(writer, rank.cpu_seconds);
      writer.U64(rank.memory);
      writer.U8(rank.gpu.has_value());
      if (!rank.gpu) continue;
      Real(writer, rank.gpu->gpus);
      writer.U64(rank.gpu->memory);
    }
  });
}

absl::StatusOr<UsageMessage> DecodeUsage(std::string_view payload) {
  WireReader reader(payload);
  const uint64_t since = reader.U64();
  const uint32_t count = reader.U32();
  UsageMessage usage{TimePoint(std::chrono::microseconds(since <= kLatest ? since : 0)), {}};
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    RankUsage rank;
    rank.rank = reader.I32();
    rank.cpu_seconds = Real(reader);
    rank.memory = reader.U64();
    const uint8_t has_gpu = reader.U8();
    if (has_gpu == 1) rank.gpu = GpuUsage{Real(reader), reader.U64()};
    if (rank.rank < 0 || has_gpu > 1 || !IsAmount(rank.cpu_seconds)) return Malformed("usage");
    if (rank.gpu && !IsAmount(rank.gpu->gpus)) return Malformed("usage: GPU");
    usage.ranks.push_back(rank);
  }
  if (!reader.AtEnd() || since > kLatest) return Malformed("usage");
  return usage;
}

}  // namespace gyre::launch
