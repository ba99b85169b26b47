// Columns and JSON lines.
#include "report.h"

#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace gyre::bench {

namespace {

Measurement Example() {
  return {.lib = "gyre",
          .task = {.operation = Operation::kAllReduce, .ranks = 4, .count = 250'000},
          .hosts = 2,
          .buffers = "arena",
          .in_place = true,
          .times = {90, 100, 110},
          .wire_bytes = 1'000'064,
          .wrong = 7,
          .ratio = std::nullopt};
}

std::vector<std::string> Words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(ReportTest, Columns) {
  EXPECT_THAT(Words(ToColumns(Example(), Example())),
              testing::ElementsAre("1000000", "250000", "f32", "sum", "-1", "100.00", "10.00", "15.00", "1000064", "7",
                                   "100.00", "10.00", "15.00", "1000064", "7", "gyre", "arena"));
}

TEST(ReportTest, OnOneHostThereIsNoWire) {
  Measurement one = Example();
  one.hosts = 1;
  one.wire_bytes = std::nullopt;
  EXPECT_THAT(Words(ToColumns(one, one)),
              testing::ElementsAre("1000000", "250000", "f32", "sum", "-1", "100.00", "10.00", "15.00", "7", "100.00",
                                   "10.00", "15.00", "7", "gyre", "arena"));
  EXPECT_TRUE(nlohmann::json::parse(ToJson(one))["wire_bytes"].is_null());
}

TEST(ReportTest, AFormThatIsMissing) {
  Measurement broadcast = Example();
  broadcast.task.operation = Operation::kBroadcast;
  broadcast.task.root = 2;
  broadcast.wire_bytes = std::nullopt;
  broadcast.wrong = std::nullopt;
  broadcast.ratio = 2.5;
  EXPECT_THAT(Words(ToColumns(std::nullopt, broadcast)),
              testing::ElementsAre("1000000", "250000", "f32", "none", "2", "N/A", "N/A", "N/A", "N/A", "N/A", "100.00",
                                   "10.00", "10.00", "N/A", "N/A", "x2.50", "gyre", "arena"));
}

TEST(ReportTest, Json) {
  const auto json = nlohmann::json::parse(ToJson(Example()));
  EXPECT_EQ(json["op"], "allreduce");
  EXPECT_EQ(json["wrong"], 7);
  EXPECT_EQ(json["wire_bytes"], 1'000'064);
  EXPECT_EQ(json["time_us_min"], 90);
  EXPECT_EQ(json["time_us_med"], 100);
  EXPECT_EQ(json["time_us_p99"], 110);
  EXPECT_EQ(json["busbw_gbs"], 15);
  EXPECT_TRUE(json["ratio"].is_null());
}

}  // namespace

}  // namespace gyre::bench
