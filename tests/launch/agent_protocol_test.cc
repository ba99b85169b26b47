// What launcher and agent say to each other, and what neither may be harmed by.
#include "launch/agent_protocol.h"

#include <fcntl.h>
#include <unistd.h>

#include <random>

#include "gtest/gtest.h"
#include "launch/channel.h"
#include "launch/liveness.h"
#include "support/status_matchers.h"

namespace gyre::launch {

namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

AgentJob SomeJob() {
  AgentJob job;
  job.version = "1.2";
  job.job_id = "id";
  job.secret = std::string(32, 's');
  job.epoch = 6;
  job.size = 5;
  job.ranks_on_hosts = {2, 3};
  job.first_rank = 2;
  job.ranks = 3;
  job.command = {"prog", "", "it's"};
  job.directory = "/a/b c";
  job.environment = {"A=1", "B="};
  job.input = true;
  job.serve_store = true;
  job.host = "b";
  job.interface = "eth0";
  job.grace = std::chrono::milliseconds(1234);
  job.first_server = 3;
  job.servers = 2;
  job.restart_rank = 7;
  return job;
}

TEST(AgentProtocolTest, AJobArrivesWhole) {
  const auto job = DecodeJob(EncodeJob(SomeJob()));
  ASSERT_THAT(job, IsOk());
  EXPECT_EQ(EncodeJob(*job), EncodeJob(SomeJob()));
  EXPECT_EQ(job->command, SomeJob().command);
  EXPECT_EQ(job->environment, SomeJob().environment);
  EXPECT_EQ(job->first_rank, 2u);
  EXPECT_EQ(job->ranks_on_hosts, SomeJob().ranks_on_hosts);
  EXPECT_EQ(job->epoch, 6u);
  EXPECT_TRUE(job->input && job->serve_store && !job->loopback);
  EXPECT_EQ(job->grace, SomeJob().grace);
  EXPECT_EQ(job->first_server * 100 + job->servers * 10 + job->restart_rank, 327u);
}

TEST(AgentProtocolTest, AHostMayHaveServersAlone) {
  AgentJob job = SomeJob();
  job.first_rank = job.size;
  job.ranks = 0;
  EXPECT_EQ(DecodeJob(EncodeJob(job))->ranks, 0u);
}

TEST(AgentProtocolTest, AJobThatCannotBeIsRefused) {
  const auto refused = [](auto change) {
    AgentJob job = SomeJob();
    change(job);
    EXPECT_THAT(DecodeJob(EncodeJob(job)), MatchesStatus(StatusCode::kDataLoss, "malformed"));
  };
  refused([](AgentJob& job) { job.ranks = job.servers = 0; });
  refused([](AgentJob& job) { job.ranks = 4; });
  refused([](AgentJob& job) { job.ranks = UINT32_MAX; });
  refused([](AgentJob& job) { job.first_rank = 6; });
  refused([](AgentJob& job) { job.ranks_on_hosts = {2, 4}; });
  refused([](AgentJob& job) { job.size = UINT32_MAX; });
  refused([](AgentJob& job) { job.command.clear(); });
  refused([](AgentJob& job) { job.command[0] = std::string("a\0b", 3); });
  refused([](AgentJob& job) { job.environment[0] = std::string("A=\0b", 4); });
  refused([](AgentJob& job) { job.grace = std::chrono::milliseconds(-1); });
  refused([](AgentJob& job) { job.grace = std::chrono::milliseconds(int64_t{1} << 52); });  // no clock counts so far
  refused([](AgentJob& job) { job.servers = UINT32_MAX; });
  refused([](AgentJob& job) { job.first_server = UINT32_MAX; });
  refused([](AgentJob& job) { job.restart_rank = UINT32_MAX; });
  std::string bytes = EncodeJob(SomeJob());
  EXPECT_THAT(DecodeJob(bytes + "x"), MatchesStatus(StatusCode::kDataLoss, ""));
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_THAT(DecodeJob(bytes.substr(0, size)), MatchesStatus(StatusCode::kDataLoss, "")) << size;
  }
}

TEST(AgentProtocolTest, SmallMessages) {
  const auto hello = DecodeHello(EncodeHello({"1.2", "me"}) + "a later version says more");
  ASSERT_THAT(hello, IsOk());
  EXPECT_EQ(hello->version + hello->host, "1.2me");
  const auto failure = DecodeFailure(EncodeFailure({69, "store", "none"}));
  ASSERT_THAT(failure, IsOk());
  EXPECT_EQ(failure->stage + failure->message, "storenone");
  EXPECT_THAT(DecodeFailure(EncodeFailure({0, "a", "b"})), MatchesStatus(StatusCode::kDataLoss, ""));
  EXPECT_EQ(*DecodeNumber(EncodeNumber(7)), 7u);
  EXPECT_EQ(DecodePair(EncodePair(7, 8))->second, 8u);
  const std::string encoded = EncodeOutput({3, 2, "bytes"});
  EXPECT_EQ(DecodeOutput(encoded)->bytes, "bytes");
  EXPECT_EQ(DecodeOutput(encoded)->stream, 2);
  EXPECT_THAT(DecodeOutput(EncodeOutput({3, 3, ""})), MatchesStatus(StatusCode::kDataLoss, ""));
}

TEST(AgentProtocolTest, AnEndKeepsItsTime) {
  const TimePoint when = TimePoint() + std::chrono::microseconds(1'234'567);
  RankEnd end{.rank = 3, .pid = 99, .when = when, .code = 42};
  end.asked_to = true;
  const auto got = DecodeRankEnd(EncodeRankEnd(end));
  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(got->when, when);
  EXPECT_EQ(got->code, 42);
  EXPECT_EQ(got->pid, 99);
  EXPECT_TRUE(got->asked_to && got->failed() && !got->lost);
}

TEST(AgentProtocolTest, SoDoReadyStartAndBeat) {
  const TimePoint when = TimePoint() + std::chrono::microseconds(1'234'567);
  const HostFacts facts{1, 2, 3, 4, 5, 6, 7, "machine"};
  const auto ready = DecodeReady(EncodeReady({when, "a:1", facts, {"b:2", "c:3"}}));
  ASSERT_THAT(ready, IsOk());
  EXPECT_EQ(ready->when, when);
  EXPECT_EQ(ready->store, "a:1");
  EXPECT_EQ(ready->servers, (std::vector<std::string>{"b:2", "c:3"}));
  const auto start = DecodeStart(EncodeStart({"a:1", {"b:2", "c:3"}}));
  ASSERT_THAT(start, IsOk());
  EXPECT_EQ(start->store, "a:1");
  EXPECT_EQ(start->servers, ready->servers);
  EXPECT_THAT(DecodeStart(EncodeStart({"a:1", {std::string("b\0c", 3)}})), MatchesStatus(StatusCode::kDataLoss, ""));
  EXPECT_THAT(DecodeStart(EncodeStart(*start) + "x"), MatchesStatus(StatusCode::kDataLoss, "malformed"));
  EXPECT_EQ(ready->facts.machine, "machine");
  EXPECT_EQ(ready->facts.cpus + ready->facts.gpus + ready->facts.mtu, 1u + 2u + 7u);
  EXPECT_EQ(ready->facts.memory + ready->facts.shm_free + ready->facts.memlock + ready->facts.wall_us,
            3u + 4u + 5u + 6u);
  HostFacts more = facts;
  more.rdma = 2;
  more.driver = "550", more.cuda = "12.4", more.nccl = "2.21.5", more.shares = "volume";
  const auto known = DecodeReady(EncodeReady({when, "", more}));
  ASSERT_THAT(known, IsOk());
  EXPECT_EQ(FactsText(known->facts), FactsText(more));
  EXPECT_EQ(known->facts.shares, "volume");
  const auto way = DecodeWay(EncodeWay({"10.77.0.2/24", "eth0", 1500}));
  ASSERT_THAT(way, IsOk());
  EXPECT_EQ(way->address + way->interface + std::to_string(way->mtu), "10.77.0.2/24eth01500");
  EXPECT_THAT(DecodeWay("x"), MatchesStatus(StatusCode::kDataLoss, "malformed"));
  const auto beat = DecodeTime(EncodeTime(when));
  ASSERT_THAT(beat, IsOk());
  EXPECT_EQ(*beat, when);
  EXPECT_THAT(DecodeTime(""), MatchesStatus(StatusCode::kDataLoss, "malformed"));
  EXPECT_THAT(DecodeTime(EncodeTime(when) + "x"), MatchesStatus(StatusCode::kDataLoss, "malformed"));
}

TEST(AgentProtocolTest, TimesThatNoClockSaysAreRefused) {
  const TimePoint latest = TimePoint() + std::chrono::microseconds(int64_t{1} << 52);
  EXPECT_THAT(DecodeTime(EncodeTime(latest)), IsOk());
  for (const TimePoint absurd : {TimePoint() - std::chrono::microseconds(1), latest + std::chrono::microseconds(1),
                                 TimePoint::min(), TimePoint::max()}) {
    EXPECT_THAT(DecodeTime(EncodeTime(absurd)), MatchesStatus(StatusCode::kDataLoss, "malformed"));
    EXPECT_THAT(DecodeReady(EncodeReady({absurd, ""})), MatchesStatus(StatusCode::kDataLoss, "malformed"));
    EXPECT_THAT(DecodeRankEnd(EncodeRankEnd({.when = absurd})), MatchesStatus(StatusCode::kDataLoss, "malformed"));
  }
}

TEST(AgentProtocolTest, GarbageIsAStatus) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string job = EncodeJob(SomeJob());
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = round % 2 == 0 ? job : std::string(random() % 64, '\0');
    for (unsigned i = 0; i < 1 + random() % 8 && !bytes.empty(); ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    (void)DecodeJob(bytes);
    (void)DecodeHello(bytes);
    (void)DecodeFailure(bytes);
    (void)DecodeOutput(bytes);
    (void)DecodePair(bytes);
    (void)DecodeNumber(bytes);
    (void)DecodeReady(bytes);
    (void)DecodeTime(bytes);
    const auto end = DecodeRankEnd(bytes);
    EXPECT_TRUE(!end.ok() || end->rank >= 0);
  }
}

// The magic in pieces of every size, after what a login shell may print.
TEST(PreambleTest, FindsTheMagicHoweverItComes) {
  const std::string banner = "Welcome!\n== gyrerun\n== gyrerun agent =";
  const std::string text = banner + std::string(kAgentMagic) + "rest";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    Preamble preamble;
    std::string rest;
    bool found = false;
    for (size_t at = 0; at < text.size(); at += piece) {
      std::string_view bytes = std::string_view(text).substr(at, piece);
      if (!found) {
        const auto now = preamble.Feed(bytes);
        ASSERT_THAT(now, IsOk());
        found = *now;
      }
      rest += bytes;
    }
    EXPECT_TRUE(found) << piece;
    EXPECT_EQ(rest, "rest") << piece;
    EXPECT_EQ(preamble.skipped(), banner) << piece;
  }
}

TEST(PreambleTest, IsBounded) {
  Preamble preamble;
  const std::string flood(1000, 'x');
  absl::StatusOr<bool> found = false;
  size_t fed = 0;
  for (; found.ok() && fed < 10 * Preamble::kLongest; fed += flood.size()) {
    std::string_view bytes = flood;
    found = preamble.Feed(bytes);
  }
  EXPECT_THAT(found, MatchesStatus(StatusCode::kDataLoss, "64 KiB"));
  EXPECT_LE(fed, Preamble::kLongest + 2000);
}

// Frames that are damaged, cut, too long, or of another kind of stream: never more than a status.
TEST(ChannelTest, DamagedFramesAreAStatus) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const UniqueFd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  int whole = 0, damaged = 0;
  for (int round = 0; round < 3'000; ++round) {
    std::string bytes = EncodeFrame({.type = 5}, std::string(random() % 300, 'p'));
    const bool harm = round % 3 != 0;
    if (harm) bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    Channel channel(null.get(), 256);
    int frames = 0;
    const absl::Status status = channel.Feed(bytes, [&](const Frame&) {
      ++frames;
      return absl::OkStatus();
    });
    const bool good = !harm && bytes.size() <= 256 + kFrameHeaderBytes;
    EXPECT_EQ(frames, good ? 1 : 0) << bytes.size();
    EXPECT_TRUE(!good || status.ok()) << status;
    (frames == 1 ? whole : damaged)++;
  }
  EXPECT_GT(whole, 100);
  EXPECT_GT(damaged, 100);
}

TEST(LivenessTest, SilenceCounts) {
  TimePoint now{};
  Liveness liveness(std::chrono::milliseconds(1500), now);
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(liveness.Expired(now += kBeat));
  EXPECT_TRUE(liveness.Expired(now += kBeat));
}

TEST(LivenessTest, ButNotWhileTheListenerWasHeldUp) {
  TimePoint now{};
  Liveness liveness(std::chrono::milliseconds(1500), now);
  EXPECT_FALSE(liveness.Expired(now += std::chrono::hours(1)));
  liveness.OnHeard(now);
  EXPECT_EQ(liveness.heard(), now);
  EXPECT_FALSE(liveness.Expired(now += std::chrono::seconds(30)));
}

}  // namespace

}  // namespace gyre::launch
