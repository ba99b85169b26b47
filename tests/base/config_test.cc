#include "base/config.h"

#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

absl::StatusOr<Config> Load(std::map<std::string, std::string, std::less<>> variables,
                            const RuntimeOptions& options = {}) {
  return LoadConfig(options, FixedEnvironment(std::move(variables)));
}

TEST(Config, HasDefaults) {
  const auto config = Load({});
  ASSERT_THAT(config, IsOk());
  EXPECT_FALSE(config->rank.has_value());
  EXPECT_FALSE(config->epoch.has_value());
  EXPECT_EQ(config->algorithms, "");
  EXPECT_FALSE(config->backend.has_value());
  EXPECT_EQ(config->streams, 1);
  EXPECT_EQ(config->start_timeout.count(), 60000);
  EXPECT_EQ(config->operation_timeout.count(), 300000);
  EXPECT_EQ(config->heartbeat_interval.count(), 100);
  EXPECT_EQ(config->heartbeat_timeout.count(), 1000);
  EXPECT_EQ(config->log_level, LogLevel::kWarning);
}

TEST(Config, StrategiesThatAreNotUnderstoodAreQuoted) {
  EXPECT_EQ(Load({})->strategy.strategy, Strategy::kAllreduce);
  for (const char* text : {"pS", ",ps", "ps,", "ps,consistency=BSP", "ps,staleness=-1", "ps,staleness=", "ps,life=0",
                           "ps,local_steps=256", "ps,servers=", "ps,values=f8", "consistency=bsp", "allreduce,ps"}) {
    EXPECT_THAT(Load({{"GYRE_STRATEGY", text}}), MatchesStatus(StatusCode::kInvalidArgument, "GYRE_STRATEGY")) << text;
  }
}

TEST(Config, TheProgramsStrategyKeepsTheLaunchersServers) {
  const auto config =
      Load({{"GYRE_STRATEGY", "ps,consistency=bsp,servers=a:1,life=3"}}, {.strategy = "ps,consistency=async"});
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->strategy.consistency, Consistency::kAsync);
  EXPECT_EQ(config->strategy.servers, std::vector<std::string>{"a:1"});
  EXPECT_EQ(config->strategy.life, 3u);
}

TEST(Config, ReadsEveryVariable) {
  const auto config =
      Load({{"GYRE_RANK", "3"},
            {"GYRE_SIZE", "8"},
            {"GYRE_STORE", "127.0.0.1:4000"},
            {"GYRE_JOB_ID", "job"},
            {"GYRE_EPOCH", "5000000000"},
            {"GYRE_SECRET_FILE", "/a/file"},
            {"GYRE_SECRET_FD", "7"},
            {"GYRE_HOST_ID", "host"},
            {"GYRE_ALGORITHMS", "allreduce=ring"},
            {"GYRE_BACKEND", "mpi"},
            {"GYRE_STREAMS", "4"},
            {"GYRE_STRATEGY", "ps,consistency=ssp,staleness=3,servers=a:1+b:2,staleness=4,values=bf16,life=2"},
            {"GYRE_START_TIMEOUT", "1.5"},
            {"GYRE_TIMEOUT", "20"},
            {"GYRE_HEARTBEAT_INTERVAL_MS", "50"},
            {"GYRE_HEARTBEAT_TIMEOUT_MS", "0"},
            {"GYRE_ARENA_BYTES", "1048576"},
            {"GYRE_FUSION_BYTES", "123457"},
            {"GYRE_COMPRESSION", "dgc:0.99"},
            {"GYRE_TIMELINE", "trace.json"},
            {"GYRE_METRICS_PORT", "9400"},
            {"GYRE_SPIN", "0"},
            {"GYRE_LOG_LEVEL", "debug"}});
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->compression, "dgc:0.99");
  EXPECT_EQ(config->rank, 3);
  EXPECT_EQ(config->size, 8);
  EXPECT_EQ(config->store, "127.0.0.1:4000");
  EXPECT_EQ(config->job_id, "job");
  EXPECT_EQ(config->epoch, 5'000'000'000);
  EXPECT_EQ(config->secret_file, "/a/file");
  EXPECT_EQ(config->secret_fd, 7);
  EXPECT_EQ(config->host_id, "host");
  EXPECT_EQ(config->algorithms, "allreduce=ring");
  EXPECT_EQ(config->backend, Backend::kMpi);
  EXPECT_EQ(config->streams, 4);
  EXPECT_EQ(config->strategy.strategy, Strategy::kParameterServer);
  EXPECT_EQ(config->strategy.consistency, Consistency::kSsp);
  EXPECT_EQ(config->strategy.staleness, 4) << "the last one counts";
  EXPECT_EQ(config->strategy.servers, (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(config->strategy.values, ValueFormat::kBF16);
  EXPECT_EQ(config->strategy.life, 2u);
  EXPECT_EQ(config->start_timeout.count(), 1500);
  EXPECT_EQ(config->operation_timeout.count(), 20000);
  EXPECT_EQ(config->heartbeat_interval.count(), 50);
  EXPECT_EQ(config->heartbeat_timeout.count(), 0);
  EXPECT_EQ(config->arena_bytes, 1048576);
  EXPECT_EQ(config->fusion_bytes, 123457);
  EXPECT_EQ(config->spin, false);
  EXPECT_EQ(config->timeline, "trace.json");
  EXPECT_EQ(config->metrics_port, 9400);
  EXPECT_EQ(config->log_level, LogLevel::kDebug);
}

TEST(Config, OptionsInCodeWin) {
  RuntimeOptions options;
  options.rank = 1;
  options.size = 2;
  options.job_id = "mine";
  options.epoch = 2;
  options.operation_timeout = std::chrono::seconds(7);
  const auto config = Load(
      {{"GYRE_RANK", "nonsense"}, {"GYRE_JOB_ID", "theirs"}, {"GYRE_EPOCH", "1"}, {"GYRE_TIMEOUT", "20"}}, options);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->rank, 1);
  EXPECT_EQ(config->job_id, "mine");
  EXPECT_EQ(config->epoch, 2);
  EXPECT_EQ(config->operation_timeout.count(), 7000);
}

TEST(Config, RefusesNoStreamsAndTooMany) {
  for (const char* const streams : {"0", "17", "-1", "two"}) {
    EXPECT_THAT(Load({{"GYRE_STREAMS", streams}}), MatchesStatus(StatusCode::kInvalidArgument, "GYRE_STREAMS"));
  }
}

TEST(Config, RefusesABackendThatThereIsNot) {
  EXPECT_EQ(Load({{"GYRE_BACKEND", "ucx"}})->backend, Backend::kUcx);
  EXPECT_THAT(Load({{"GYRE_BACKEND", "nccl"}}), MatchesStatus(StatusCode::kInvalidArgument, "native, mpi or ucx"));
}

TEST(Config, RefusesNonsenseByName) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"GYRE_SIZE", "x"},         {"GYRE_RANK", "-1"},           {"GYRE_TIMEOUT", "0"},
      {"GYRE_TIMEOUT", "nan"},    {"GYRE_SPIN", "maybe"},        {"GYRE_ARENA_BYTES", "0"},
      {"GYRE_LOG_LEVEL", "loud"}, {"GYRE_TIMEOUT", "1e300"},     {"GYRE_HEARTBEAT_INTERVAL_MS", "1.5"},
      {"GYRE_EPOCH", "-1"},       {"GYRE_EPOCH", "second"},      {"GYRE_EPOCH", "9223372036854775808"},
      {"GYRE_METRICS_PORT", "0"}, {"GYRE_METRICS_PORT", "65536"}};
  for (const auto& [name, value] : kWrong) {
    EXPECT_THAT(Load({{name, value}}), MatchesStatus(StatusCode::kInvalidArgument, std::string(name) + "=" + value));
  }
}

TEST(Config, ANegativeEpochInCodeIsRefused) {
  RuntimeOptions options;
  options.epoch = -1;
  EXPECT_THAT(Load({}, options), MatchesStatus(StatusCode::kInvalidArgument, "GYRE_EPOCH"));
}

TEST(Config, GyrerunsIdentityIsTakenWholeOrNotAtAll) {
  std::map<std::string, std::string, std::less<>> gyreruns = {
      {"GYRE_RANK", "3"},        {"GYRE_SIZE", "8"},      {"GYRE_STORE", "127.0.0.1:4000"},
      {"GYRE_JOB_ID", "theirs"}, {"GYRE_SECRET_FD", "7"}, {"GYRE_SECRET_FILE", "/a/file"},
      {"GYRE_EPOCH", "4"}};
  RuntimeOptions options;
  options.rank = 1;
  options.size = 2;
  const auto in_code = Load(gyreruns, options);
  ASSERT_THAT(in_code, IsOk());
  EXPECT_FALSE(in_code->store || in_code->job_id || in_code->epoch || in_code->secret_fd);
  EXPECT_EQ(in_code->secret_file, "/a/file");
  options.store = "127.0.0.1:5000";
  EXPECT_EQ(Load(gyreruns, options)->store, "127.0.0.1:5000");

  // A user's own store and job are for whoever gives the rank.
  gyreruns.erase("GYRE_SECRET_FD");
  options.store.reset();
  EXPECT_EQ(Load(gyreruns, options)->store, "127.0.0.1:4000");
  EXPECT_EQ(Load(gyreruns, options)->job_id, "theirs");
  EXPECT_EQ(Load(gyreruns, options)->epoch, 4);

  const auto remains = Load({{"GYRE_STORE", "127.0.0.1:4000"}, {"GYRE_SECRET_FD", "7"}});
  ASSERT_THAT(remains, IsOk());
  EXPECT_FALSE(remains->store || remains->secret_fd);
  EXPECT_THAT(Load({{"GYRE_RANK", "0"}, {"GYRE_SIZE", "1"}, {"GYRE_SECRET_FD", "one"}}),
              MatchesStatus(StatusCode::kInvalidArgument, "GYRE_SECRET_FD=one"));
}

TEST(Config, RefusesContradictions) {
  EXPECT_THAT(Load({{"GYRE_RANK", "0"}}), MatchesStatus(StatusCode::kInvalidArgument, "together"));
  EXPECT_THAT(Load({{"GYRE_RANK", "2"}, {"GYRE_SIZE", "2"}}),
              MatchesStatus(StatusCode::kInvalidArgument, "rank 2 is not below size 2"));
  EXPECT_THAT(Load({{"GYRE_RANK", "0"}, {"GYRE_SIZE", "0"}}),
              MatchesStatus(StatusCode::kInvalidArgument, "must be 1 to"));
  EXPECT_THAT(Load({{"GYRE_HEARTBEAT_TIMEOUT_MS", "150"}}),
              MatchesStatus(StatusCode::kInvalidArgument, "two heartbeat intervals"));
  RuntimeOptions beats;  // twice as long is out of range
  beats.heartbeat_interval = std::chrono::milliseconds::max();
  EXPECT_THAT(Load({}, beats), MatchesStatus(StatusCode::kInvalidArgument, "two heartbeat intervals"));
  RuntimeOptions options;
  options.secret = "short";
  EXPECT_THAT(Load({}, options), MatchesStatus(StatusCode::kInvalidArgument, "16 bytes"));
}

// Multiples of heartbeats are added to times.
TEST(Config, CutsHeartbeatsThatAreOutOfRange) {
  RuntimeOptions options;
  options.heartbeat_timeout = std::chrono::milliseconds::max();
  EXPECT_EQ(Load({}, options)->heartbeat_timeout, std::chrono::hours(24 * 365 * 10));
  options.heartbeat_interval = std::chrono::milliseconds::max();
  options.heartbeat_timeout = std::chrono::milliseconds(0);
  EXPECT_EQ(Load({}, options)->heartbeat_interval, std::chrono::hours(24 * 365 * 10));
  EXPECT_EQ(Load({}, options)->heartbeat_timeout, std::chrono::milliseconds(0));
}

// It travels in JSON and in messages.
TEST(Config, TakesAHostIdOfPrintableAsciiOnly) {
  EXPECT_THAT(Load({{"GYRE_HOST_ID", "host 1/a"}}), IsOk());
  for (const char* text : {"h\xff", "h\xc3\xb6", "line\n", "tab\t", "\x7f"}) {
    const auto config = Load({{"GYRE_HOST_ID", text}});
    EXPECT_THAT(config, MatchesStatus(StatusCode::kInvalidArgument, "host_id (GYRE_HOST_ID)"));
    EXPECT_EQ(config.status().message().find('\n'), absl::string_view::npos) << "more than one line";
    RuntimeOptions options;
    options.host_id = text;
    EXPECT_THAT(Load({}, options), MatchesStatus(StatusCode::kInvalidArgument, "printable ASCII"));
  }
}

TEST(Environment, EmptyCountsAsUnset) {
  EXPECT_FALSE(FixedEnvironment({{"A", ""}})("A").has_value());
}

}  // namespace
}  // namespace gyre
