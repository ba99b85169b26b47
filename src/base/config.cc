#include "base/config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre {

namespace {

absl::Status Unusable(std::string_view name, const std::string& value, std::string_view accepted) {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), "=", value, " is not ", ToAbsl(accepted)));
}

// Reads variables one after the other and keeps the first error.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  const absl::Status& status() const { return status_; }

  void Text(std::string_view name, std::optional<std::string>& field) {
    if (auto text = environment_(name)) field = *std::move(text);
  }

  void Text(std::string_view name, std::string& field) {
    if (auto text = environment_(name)) field = *std::move(text);
  }

  template <typename Field>
  void Integer(std::string_view name, std::optional<Field>& field) {
    Parse(name, "an integer of 0 or more", [&](const std::string& text) {
      Field value = 0;
      if (!absl::SimpleAtoi(text, &value) || value < 0) return false;
      field = value;
      return true;
    });
  }

  void Port(std::string_view name, std::optional<int>& field) {
    Parse(name, "a port, 1 to 65535", [&](const std::string& text) {
      int value = 0;
      if (!absl::SimpleAtoi(text, &value) || value < 1 || value > 65535) return false;
      field = value;
      return true;
    });
  }

  void Descriptors(std::string_view name, std::optional<int>& first, std::optional<int>& second) {
    Parse(name, "a descriptor, or two apart by a comma", [&](const std::string& text) {
      const size_t comma = text.find(',');
      int values[2] = {0, 0};
      if (!absl::SimpleAtoi(text.substr(0, comma), &values[0]) || values[0] < 0) return false;
      first = values[0];
      if (comma == std::string::npos) return true;
      if (!absl::SimpleAtoi(text.substr(comma + 1), &values[1]) || values[1] < 0) return false;
      second = values[1];
      return true;
    });
  }

  template <typename Field>
  void Bytes(std::string_view name, Field& field) {
    Parse(name, "a number of bytes (an integer of 1 or more)", [&](const std::string& text) {
      int64_t value = 0;
      if (!absl::SimpleAtoi(text, &value) || value < 1) return false;
      field = value;
      return true;
    });
  }

  template <typename Field>
  void Boolean(std::string_view name, Field& field) {
    Parse(name, "0 or 1", [&](const std::string& text) {
      if (text != "0" && text != "1") return false;
      field = text == "1";
      return true;
    });
  }

  void Seconds(std::string_view name, std::chrono::milliseconds& field) {
    Parse(name, "a time in seconds, more than 0 and at most 1e9", [&](const std::string& text) {
      double seconds = 0;
      if (!absl::SimpleAtod(text, &seconds) || !(seconds > 0) || seconds > 1e9) return false;
      field = std::chrono::milliseconds(std::llround(std::ceil(seconds * 1e3)));
      return true;
    });
  }

  void Milliseconds(std::string_view name, std::chrono::milliseconds& field) {
    Parse(name, "a time in whole milliseconds", [&](const std::string& text) {
      int value = 0;
      if (!absl::SimpleAtoi(text, &value) || value < 0) return false;
      field = std::chrono::milliseconds(value);
      return true;
    });
  }

  void Streams(std::string_view name, int& field) {
    Parse(name, "an integer", [&](const std::string& text) { return absl::SimpleAtoi(text, &field); });
  }

  void BackendName(std::string_view name, std::optional<Backend>& field) {
    Parse(name, "native, mpi or ucx", [&](const std::string& text) {
      field = text == "mpi" ? Backend::kMpi : text == "ucx" ? Backend::kUcx : Backend::kNative;
      return text == "mpi" || text == "ucx" || text == "native";
    });
  }

  void Level(std::string_view name, LogLevel& field) {
    Parse(name, "one of debug, info, warning, error, off", [&](const std::string& text) {
      constexpr std::pair<std::string_view, LogLevel> kLevels[] = {{"debug", LogLevel::kDebug},
                                                                   {"info", LogLevel::kInfo},
                                                                   {"warning", LogLevel::kWarning},
                                                                   {"error", LogLevel::kError},
                                                                   {"off", LogLevel::kOff}};
      for (const auto& [level_name, level] : kLevels) {
        if (text == level_name) {
          field = level;
          return true;
        }
      }
      return false;
    });
  }

 private:
  template <typename Accept>
  void Parse(std::string_view name, std::string_view accepted, Accept accept) {
    const auto text = environment_(name);
    if (text && !accept(*text) && status_.ok()) status_ = Unusable(name, *text, accepted);
  }

  const Environment& environment_;
  absl::Status status_;
};

template <typename T>
void Override(T& field, const std::optional<T>& option) {
  if (option) field = *option;
}

template <typename T>
void Override(std::optional<T>& field, const std::optional<T>& option) {
  if (option) field = option;
}

// An identity is taken whole: half of it from a stray variable would name some other rank. gyrerun's, which the
// descriptor of its secret tells, has six parts: where code gives the rank, or GYRE_RANK was taken away, the job is
// another one than gyrerun's, and must not look for it at gyrerun's store.
void ReadIdentity(const RuntimeOptions& options, const Environment& environment, Reader& reader, Config& config) {
  const bool in_code = options.rank || options.size;
  if (!in_code) {
    reader.Integer("GYRE_RANK", config.rank);
    reader.Integer("GYRE_SIZE", config.size);
  }
  const bool gyreruns = environment("GYRE_SECRET_FD").has_value();
  const bool taken = !in_code && environment("GYRE_RANK").has_value();
  if (gyreruns && !taken) return;
  reader.Text("GYRE_STORE", config.store);
  reader.Text("GYRE_JOB_ID", config.job_id);
  reader.Integer("GYRE_EPOCH", config.epoch);
  reader.Descriptors("GYRE_SECRET_FD", config.secret_fd, config.report_fd);
}

bool IsPrintableAscii(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

// Longer heartbeats are cut to this, so that multiples of them do not overflow.
constexpr std::chrono::milliseconds kLongestHeartbeat = std::chrono::hours(24 * 365 * 10);

absl::Status Check(const Config& config) {
  if (config.rank.has_value() != config.size.has_value()) {
    return absl::InvalidArgumentError("rank and size (GYRE_RANK and GYRE_SIZE) must be given together");
  }
  if (config.size && (*config.size < 1 || *config.size > kMaxJobRanks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("size (GYRE_SIZE) must be 1 to ", kMaxJobRanks, " ranks, not ", *config.size));
  }
  if (config.rank && (*config.rank < 0 || *config.rank >= *config.size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", *config.rank, " is not below size ", *config.size, " (GYRE_RANK, GYRE_SIZE)"));
  }
  if (config.epoch && *config.epoch < 0) return absl::InvalidArgumentError("epoch (GYRE_EPOCH) must be 0 or more");
  if (config.host_id && !IsPrintableAscii(*config.host_id)) {
    return absl::InvalidArgumentError("host_id (GYRE_HOST_ID) must be printable ASCII");
  }
  if (config.secret && config.secret->size() < 16) {
    return absl::InvalidArgumentError("the secret must have 16 bytes or more");
  }
  if (config.start_timeout.count() <= 0 || config.operation_timeout.count() <= 0) {
    return absl::InvalidArgumentError("start_timeout and operation_timeout must be positive");
  }
  if (config.heartbeat_interval.count() < 1) {
    return absl::InvalidArgumentError("heartbeat_interval (GYRE_HEARTBEAT_INTERVAL_MS) must be 1 ms or more");
  }
  if (config.heartbeat_timeout.count() != 0 && config.heartbeat_timeout / 2 < config.heartbeat_interval) {
    return absl::InvalidArgumentError(
        "heartbeat_timeout (GYRE_HEARTBEAT_TIMEOUT_MS) must be 0 or at least two heartbeat intervals");
  }
  if (config.streams < 1 || config.streams > 16) {
    return absl::InvalidArgumentError("streams (GYRE_STREAMS) must be 1 to 16");
  }
  if (config.arena_bytes < 0) return absl::InvalidArgumentError("arena_bytes must be 0 or more");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Config> LoadConfig(const RuntimeOptions& options, const Environment& environment) {
  Config config;
  Reader reader(environment);
  ReadIdentity(options, environment, reader, config);
  reader.Text("GYRE_SECRET_FILE", config.secret_file);
  reader.Text("GYRE_HOST_ID", config.host_id);
  reader.Text("GYRE_INTERFACE", config.interface);
  reader.Boolean("GYRE_CHECKSUM_DATA", config.checksum_data);
  reader.Text("GYRE_ALGORITHMS", config.algorithms);
  reader.BackendName("GYRE_BACKEND", config.backend);
  reader.Streams("GYRE_STREAMS", config.streams);
  reader.Seconds("GYRE_START_TIMEOUT", config.start_timeout);
  reader.Seconds("GYRE_TIMEOUT", config.operation_timeout);
  reader.Milliseconds("GYRE_HEARTBEAT_INTERVAL_MS", config.heartbeat_interval);
  reader.Milliseconds("GYRE_HEARTBEAT_TIMEOUT_MS", config.heartbeat_timeout);
  reader.Bytes("GYRE_ARENA_BYTES", config.arena_bytes);
  reader.Bytes("GYRE_FUSION_BYTES", config.fusion_bytes);
  reader.Text("GYRE_COMPRESSION", config.compression);
  reader.Boolean("GYRE_SPIN", config.spin);
  reader.Text("GYRE_TIMELINE", config.timeline);
  reader.Port("GYRE_METRICS_PORT", config.metrics_port);
  reader.Level("GYRE_LOG_LEVEL", config.log_level);
  std::string strategy;
  reader.Text("GYRE_STRATEGY", strategy);
  RETURN_IF_ERROR(reader.status());

  ASSIGN_OR_RETURN(config.strategy, ParseStrategy(strategy));
  if (options.strategy) {
    // Where servers are, and which life this is, the launcher knows.
    ASSIGN_OR_RETURN(StrategyConfig given, ParseStrategy(*options.strategy));
    if (given.servers.empty()) given.servers = config.strategy.servers;
    if (!given.replicas) given.replicas = config.strategy.replicas;
    given.life = config.strategy.life;
    config.strategy = std::move(given);
  }
  Override(config.rank, options.rank);
  Override(config.size, options.size);
  Override(config.store, options.store);
  Override(config.job_id, options.job_id);
  Override(config.epoch, options.epoch);
  Override(config.secret, options.secret);
  Override(config.secret_file, options.secret_file);
  Override(config.host_id, options.host_id);
  Override(config.interface, options.interface);
  Override(config.checksum_data, options.checksum_data);
  Override(config.algorithms, options.algorithms);
  Override(config.backend, options.backend);
  Override(config.streams, options.streams);
  Override(config.start_timeout, options.start_timeout);
  Override(config.operation_timeout, options.operation_timeout);
  Override(config.heartbeat_interval, options.heartbeat_interval);
  Override(config.heartbeat_timeout, options.heartbeat_timeout);
  Override(config.arena_bytes, options.arena_bytes);
  Override(config.spin, options.spin);
  Override(config.log_level, options.log_level);
  RETURN_IF_ERROR(Check(config));
  config.heartbeat_interval = std::min(config.heartbeat_interval, kLongestHeartbeat);
  config.heartbeat_timeout = std::min(config.heartbeat_timeout, kLongestHeartbeat);
  return config;
}

}  // namespace gyre
