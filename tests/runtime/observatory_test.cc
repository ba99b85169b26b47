// What is told of calls: the ring, the timeline's file, counters and who answers for them.
#include "runtime/observatory.h"

#include <signal.h>
#include <sys/resource.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "net/socket.h"
#include "nlohmann/json.hpp"
#include "runtime/clock_offset.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::internal {
namespace {

using std::chrono::microseconds;
using support::IsOk;
using support::MatchesStatus;
using testing::HasSubstr;

Observed Call(Activity activity, int64_t bytes, int begin_us = 10, int end_us = 25) {
  return {.activity = activity,
          .bytes = bytes,
          .begin = TimePoint(microseconds(begin_us)),
          .end = TimePoint(microseconds(end_us))};
}

std::string Content(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(EventRing, KeepsWhatFitsInOrderAndCountsTheRest) {
  EventRing ring(4);
  EXPECT_FALSE(ring.Pop().has_value());
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 6; ++i) EXPECT_EQ(ring.Push({.thread = i}), i < 4);
    for (int i = 0; i < 4; ++i) {
      const auto event = ring.Pop();
      ASSERT_TRUE(event.has_value());
      EXPECT_EQ(event->thread, i);
    }
    EXPECT_FALSE(ring.Pop().has_value());
  }
  EXPECT_EQ(ring.dropped(), 6);
}

// Each writer's events come in its order, and none is lost, doubled or torn.
TEST(EventRing, ManyWriters) {
  constexpr int kWriters = 3, kEvents = 20'000;
  EventRing ring(64);
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&ring, writer] {
      for (int64_t i = 0; i < kEvents;) {
        if (ring.Push({.observed = {.bytes = i}, .thread = writer})) {
          ++i;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  std::array<int64_t, kWriters> next = {};
  while (next != std::array<int64_t, kWriters>{kEvents, kEvents, kEvents}) {
    const auto event = ring.Pop();
    if (!event) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(event->observed.bytes, next[static_cast<size_t>(event->thread)]++);
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_FALSE(ring.Pop().has_value());
}

TEST(TimelineFile, IsWholeJsonAfterEveryAppend) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "t.3";
  auto file = TimelineFile::Create(path, {.rank = 3, .host = "h\xff\"", .offset_us = 1.5});
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(nlohmann::json::parse(Content(path)).size(), 3) << "who, where in the order, how the clock was set";
  for (size_t appended = 1; appended <= 3; ++appended) {
    std::string lines;
    AppendJson({.observed = Call(Activity::kAllReduce, 64), .thread = 7}, {.rank = 3, .offset_us = 1.5}, 1, lines);
    ASSERT_THAT(file->Append(lines), IsOk());
    const auto json = nlohmann::json::parse(Content(path));
    ASSERT_EQ(json.size(), 3 + appended);
    const auto& event = json.back();
    EXPECT_EQ(event["name"], "allreduce");
    EXPECT_EQ(event["ph"], "X");
    EXPECT_EQ(event["pid"], 3);
    EXPECT_EQ(event["tid"], 7);
    EXPECT_EQ(event["ts"], 11.5) << "with the clock's offset";
    EXPECT_EQ(event["dur"], 15);
    EXPECT_EQ(event["args"]["bytes"], 64);
    EXPECT_FALSE(event["args"].contains("failed"));
  }
  EXPECT_THAT(file->Append({}), IsOk());
}

// A limit on files in place of a full disk: either takes as much of a block as fits.
TEST(TimelineFile, StaysWholeWhereABlockDoesNotFit) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "t.0";
  auto file = TimelineFile::Create(path, {});
  ASSERT_THAT(file, IsOk());
  const std::string before = Content(path);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit tight{.rlim_cur = before.size() + 20, .rlim_max = limit.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &tight);
  std::string lines;
  AppendJson({.observed = Call(Activity::kAllReduce, 64), .thread = 7}, {}, 1, lines);
  const absl::Status appended = file->Append(lines);
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);
  EXPECT_FALSE(appended.ok());
  EXPECT_EQ(Content(path), before);
  EXPECT_THAT(file->Append(lines), IsOk());
  EXPECT_EQ(nlohmann::json::parse(Content(path)).size(), 4);
}

TEST(TimelineFile, AsynchronousCallsHaveTwoEnds) {
  Observed observed = Call(Activity::kBucket, 64);
  observed.asynchronous = observed.failed = true;
  std::string lines;
  AppendJson({.observed = observed}, {.rank = 2}, 5, lines);
  const auto events = nlohmann::json::parse("[" + lines + "]");
  ASSERT_EQ(events.size(), 2);
  const auto &begin = events[0], &end = events[1];
  EXPECT_EQ(begin["ph"], "b");
  EXPECT_EQ(end["ph"], "e");
  EXPECT_EQ(begin["id"], end["id"]);
  EXPECT_EQ(begin["ts"], 10);
  EXPECT_EQ(end["ts"], 25);
  EXPECT_EQ(begin["args"]["failed"], true);
}

TEST(TimelineFile, TimesAreExactToTheNanosecond) {
  Observed observed = Call(Activity::kBarrier, 0);
  observed.end = observed.begin + std::chrono::nanoseconds(1'000'002);
  std::string lines;
  AppendJson({.observed = observed}, {.offset_us = -20.001}, 0, lines);
  AppendDropped(17, {.offset_us = 0.25}, observed.begin, lines);
  const auto events = nlohmann::json::parse("[" + lines + "]");
  EXPECT_EQ(events[0]["ts"], -10.001) << "before rank 0's clock began";
  EXPECT_EQ(events[0]["dur"], 1000.002);
  EXPECT_EQ(events[1]["ts"], 10.25);
  EXPECT_EQ(events[1]["args"]["events"], 17);
}

TEST(TimelineFile, AFolderThatIsNotThere) {
  EXPECT_THAT(TimelineFile::Create("/nowhere/at/all", {}), MatchesStatus(absl::StatusCode::kNotFound, "GYRE_TIMELINE"));
}

TEST(Timeline, WritesAllBeforeItEnds) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "t.0";
  auto timeline = Timeline::Open(path, {}, MakeLogger(LogLevel::kOff, "test"));
  ASSERT_THAT(timeline, IsOk());
  for (int i = 0; i < 10'000; ++i) (*timeline)->Record(Call(Activity::kBarrier, i));
  timeline->reset();
  const auto json = nlohmann::json::parse(Content(path));
  ASSERT_EQ(json.size(), 10'003);
  EXPECT_EQ(json.back()["args"]["bytes"], 9'999);
}

TEST(Metrics, Text) {
  Metrics metrics(3, 8, 1);
  metrics.Count(Call(Activity::kAllReduce, 100));
  metrics.Count(Call(Activity::kAllReduce, 28));
  Observed failed = Call(Activity::kBarrier, 0);
  failed.failed = true;
  metrics.Count(failed);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("rank=\"3\",size=\"8\",host=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("gyre_calls_total{op=\"allreduce\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("gyre_call_bytes_total{op=\"allreduce\"} 128\n"));
  EXPECT_THAT(text, HasSubstr("gyre_call_seconds_total{op=\"allreduce\"} 0.000030000\n"));
  EXPECT_THAT(text, HasSubstr("gyre_call_failures_total{op=\"allreduce\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("gyre_call_failures_total{op=\"barrier\"} 1\n"));
  EXPECT_EQ(text.back(), '\n');
}

std::string Request(uint16_t port, const std::string& text) {
  const TimePoint deadline = DeadlineAfter(std::chrono::steady_clock::now(), std::chrono::seconds(20));
  const auto fd = ConnectTcp({"127.0.0.1", port}, deadline);
  EXPECT_THAT(fd, IsOk());
  EXPECT_THAT(SendAll(fd->get(), std::as_bytes(std::span(text)), deadline), IsOk());
  std::string answer;
  std::array<std::byte, 512> part;
  for (auto size = ReceiveSome(fd->get(), part, deadline); size.ok(); size = ReceiveSome(fd->get(), part, deadline)) {
    answer.append(reinterpret_cast<const char*>(part.data()), *size);
  }
  return answer;
}

TEST(MetricsServer, AnswersOneAfterTheOther) {
  int asked = 0;
  auto server = MetricsServer::Start({"127.0.0.1", 0}, [&asked] { return absl::StrCat("count ", ++asked, "\n"); });
  ASSERT_THAT(server, IsOk());
  const uint16_t port = (*server)->port();
  EXPECT_THAT(Request(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
              testing::AllOf(testing::StartsWith("HTTP/1.0 200 OK\r\n"), HasSubstr("Content-Length: 8\r\n"),
                             testing::EndsWith("\r\n\r\ncount 1\n")));
  EXPECT_THAT(Request(port, "GET / HTTP/1.1\r\n\r\n"), testing::StartsWith("HTTP/1.0 404 "));
  EXPECT_THAT(Request(port, "POST /metrics HTTP/1.1\r\n\r\n"), testing::StartsWith("HTTP/1.0 405 "));
  EXPECT_THAT(Request(port, std::string(5000, 'x')), testing::Not(HasSubstr("200 OK"))) << "too long a request";
  EXPECT_THAT(Request(port, "GET /metrics HTTP/1.0\r\n\r\n"), testing::EndsWith("count 2\n"));
  EXPECT_THAT(MetricsServer::Start({"127.0.0.1", port}, nullptr), MatchesStatus(absl::StatusCode::kAlreadyExists, ""));
}

TEST(ClockOffset, IsThatOfOneClockWithinItsUncertainty) {
  const support::HostSizes hosts = {2, 1, 2};
  support::RunThreads(5, [&](const support::Rank& rank) {
    const auto runtime = support::JoinJob(rank, support::JobOptions(rank, hosts));
    ASSERT_NE(runtime, nullptr);
    const auto measured = MeasureClockOffset(runtime->world());
    ASSERT_THAT(measured, IsOk());
    EXPECT_LE(std::abs(measured->offset.count()), measured->uncertainty.count()) << "these hosts are one machine";
    EXPECT_EQ(measured->uncertainty.count() > 0, runtime->world().node_rank() > 0);
    EXPECT_THAT(runtime->world().Barrier(), IsOk());
  });
}

std::map<std::string, int> CountByName(const nlohmann::json& events) {
  std::map<std::string, int> counts;
  for (const auto& event : events) counts[absl::StrCat(std::string(event["name"]), " ", std::string(event["ph"]))]++;
  return counts;
}

// Blocking and asynchronous calls, within a host and between hosts. In processes: the variables are a process's.
TEST(Observatory, TellsOfEveryCall) {
  support::RunProcesses(4, [](const support::Rank& rank) {
    const std::string path = rank.directory / "trace.json";
    ASSERT_EQ(setenv("GYRE_TIMELINE", path.c_str(), 1), 0);
    {
      const auto runtime = support::JoinJob(rank, support::JobOptions(rank, {2, 2}));
      ASSERT_NE(runtime, nullptr);
      Communicator& world = runtime->world();
      std::vector<float> data(1000);
      EXPECT_THAT(world.AllReduce(data), IsOk());
      EXPECT_THAT(world.AllReduceAsync(data).Wait(), IsOk());
      const std::vector<int> here = rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
      auto host = world.Split(here);
      ASSERT_THAT(host, IsOk());
      EXPECT_THAT((*host)->BroadcastAsync(data, 0).Wait(), IsOk());
      const absl::Status refused = (*host)->Broadcast(data, 5);
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(world.Barrier(), IsOk());
    }
    const auto events = nlohmann::json::parse(Content(absl::StrCat(path, ".", rank.rank)));
    auto counts = CountByName(events);
    EXPECT_GE(counts["allreduce X"], 1);
    EXPECT_EQ(counts["allreduce b"], 1);
    EXPECT_EQ(counts["allreduce e"], 1);
    EXPECT_EQ(counts["broadcast b"], 1);
    EXPECT_EQ(counts["broadcast X"], 1);
    EXPECT_EQ(counts["barrier X"], 1);
    for (const auto& event : events) {
      EXPECT_EQ(event["pid"], rank.rank);
      if (event["name"] == "allreduce" && event["ph"] == "b") {
        EXPECT_EQ(event["args"]["bytes"], 4000);
      }
      if (event["name"] == "broadcast" && event["ph"] == "X") {
        EXPECT_EQ(event["args"]["failed"], true);
      }
      if (event["name"] == "clock_offset") {
        EXPECT_EQ(event["args"]["uncertainty_us"] > 0, rank >= 2);
      }
    }
  });
}

}  // namespace
}  // namespace gyre::internal
