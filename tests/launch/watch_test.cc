// Watching a job: bindings, reports, the board, the trace of usage, cooldown, and what the output shows of it.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "launch/host_cooldown.h"
#include "launch/job_board.h"
#include "launch/options.h"
#include "launch/output_mux.h"
#include "launch/pipe.h"
#include "launch/placement.h"
#include "launch/process_usage.h"
#include "launch/rank_report.h"
#include "launch/rank_watch.h"
#include "launch/server_ranks.h"
#include "launch/stacks.h"
#include "launch/usage_trace.h"
#include "launch/watch_protocol.h"
#include "launch/whole_file.h"
#include "runtime/reporter.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::launch {

namespace {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using support::IsOk;
using support::MatchesStatus;
using Cpus = std::vector<int>;

constexpr char kTwoSockets[] = "pack:2 [numa] core:3 pu:2";  // core c has processors 2c and 2c + 1

TimePoint AtSecond(double seconds_in) {
  return TimePoint() + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds_in));
}

// --- Placement ---

TEST(PlacementTest, ACoreEachInOrderOrByNodesInTurn) {
  const auto in_order = PlanBindings(BindTo::kCore, MapBy::kCore, 5, kTwoSockets);
  ASSERT_THAT(in_order, IsOk());
  EXPECT_EQ((*in_order)[1].cpus, (Cpus{2, 3}));
  EXPECT_EQ((*in_order)[4].cpus, (Cpus{8, 9}));
  EXPECT_EQ((*in_order)[4].where, "core 4");
  const auto in_turn = PlanBindings(BindTo::kCore, MapBy::kNuma, 6, kTwoSockets);
  ASSERT_THAT(in_turn, IsOk());
  EXPECT_EQ((*in_turn)[0].cpus, (Cpus{0, 1}));
  EXPECT_EQ((*in_turn)[1].cpus, (Cpus{6, 7}));
  EXPECT_EQ((*in_turn)[5].cpus, (Cpus{10, 11}));
}

TEST(PlacementTest, ANodeForAsManyRanksAsFallOnIt) {
  const auto in_order = PlanBindings(BindTo::kNuma, MapBy::kCore, 3, kTwoSockets);
  ASSERT_THAT(in_order, IsOk());
  EXPECT_EQ(CpuListText((*in_order)[0].cpus), "0-5");
  EXPECT_EQ(CpuListText((*in_order)[1].cpus), "0-5");
  EXPECT_EQ((*in_order)[2].where, "NUMA node 1");
  const auto in_turn = PlanBindings(BindTo::kNuma, MapBy::kNuma, 3, kTwoSockets);
  ASSERT_THAT(in_turn, IsOk());
  EXPECT_EQ(CpuListText((*in_turn)[1].cpus), "6-11");
  EXPECT_EQ(CpuListText((*in_turn)[2].cpus), "0-5");
}

TEST(PlacementTest, OversubscribedHostsAreNotBound) {
  EXPECT_THAT(PlanBindings(BindTo::kCore, MapBy::kCore, 7, kTwoSockets),
              MatchesStatus(StatusCode::kFailedPrecondition, "not bound: 7 ranks are more than the 6 cores"));
  EXPECT_THAT(PlanBindings(BindTo::kNuma, MapBy::kNuma, 13, kTwoSockets),
              MatchesStatus(StatusCode::kFailedPrecondition, "more than the 12 processors"));
  EXPECT_THAT(PlanBindings(BindTo::kNuma, MapBy::kNuma, 12, kTwoSockets), IsOk());
  EXPECT_TRUE(PlanBindings(BindTo::kNone, MapBy::kCore, 99)->empty());
  EXPECT_EQ(PlanBindings(BindTo::kCore, MapBy::kCore, 1)->front().cpus.empty(), false);  // this machine
}

TEST(PlacementTest, CpuLists) {
  EXPECT_EQ(CpuListText({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(CpuListText({}), "");
}

// --- Reports ---

TEST(ReportTest, WhatTheLibraryWritesIsRead) {
  const auto line = internal::ReportLine(
      3, {.phase = JobPhase::kStoring, .activity = "saving-1", .step = 5, .steps = 6, .loss = 0.25});
  ASSERT_THAT(line, IsOk());
  const auto report = ParseRankReport(*line);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->rank, 3);
  EXPECT_EQ(report->phase, Phase::kStoring);
  EXPECT_EQ(report->activity, "saving-1");
  EXPECT_EQ(report->step, 5);
  EXPECT_EQ(report->steps, 6);
  EXPECT_EQ(report->loss, 0.25);
  EXPECT_EQ(*internal::ReportLine(0, {}), "rank=0");
  EXPECT_TRUE(std::isnan(*ParseRankReport(*internal::ReportLine(0, {.loss = std::nan("")}))->loss));
  for (const JobReport& wrong : {JobReport{.activity = "two words"}, JobReport{.activity = "a,b"},
                                 JobReport{.activity = "a word that is longer than 32 bytes"}, JobReport{.step = -1}}) {
    EXPECT_THAT(internal::ReportLine(0, wrong), MatchesStatus(StatusCode::kInvalidArgument, "rank 0"));
  }
}

TEST(ReportTest, OthersAreRefused) {
  EXPECT_THAT(ParseRankReport("rank=1 later=versions say=more"), IsOk());
  for (const char* line : {"", "step=1", "rank=-1", "rank=x", "rank=1 step", "rank=1 step=-2", "rank=1 loss=x",
                           "rank=1 phase=FAILED", "rank=1 activity=a;b", "rank=1 activity="}) {
    EXPECT_THAT(ParseRankReport(line), MatchesStatus(StatusCode::kDataLoss, "")) << line;
  }
  EXPECT_THAT(ParseRankReport(absl::StrCat("rank=1 x=", std::string(kLongestReport, 'x'))),
              MatchesStatus(StatusCode::kDataLoss, ""));
}

struct Ends {
  UniqueFd ours;
  UniqueFd ranks;
};
Ends MakeEnds() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<std::string> Received(int fd) {
  std::vector<std::string> lines;
  char line[512];
  for (ssize_t n; (n = recv(fd, line, sizeof line, MSG_DONTWAIT)) > 0;)
    lines.emplace_back(line, static_cast<size_t>(n));
  return lines;
}

TEST(ReporterTest, NumbersComeTenTimesASecondAtMostTheRestAlways) {
  const Ends ends = MakeEnds();
  internal::Reporter reporter(ends.ranks.get(), 2);
  for (int64_t step = 0; step < 1000; ++step) EXPECT_THAT(reporter.Report({.step = step}), IsOk());
  EXPECT_LT(Received(ends.ours.get()).size(), 100u);  // a test may be held up, but not for ten seconds
  EXPECT_THAT(reporter.Report({.activity = "a"}), IsOk());
  EXPECT_THAT(reporter.Report({.activity = "b"}), IsOk());
  EXPECT_THAT(reporter.Report({.step = 7, .steps = 7}), IsOk());  // the last one
  EXPECT_EQ(Received(ends.ours.get()),
            (std::vector<std::string>{"rank=2 activity=a", "rank=2 activity=b", "rank=2 step=7 steps=7"}));
}

TEST(ReporterTest, ProgramsThatTheRankStartsDoNotGetItsSocket) {
  const Ends ends = MakeEnds();
  internal::Reporter reporter(ends.ranks.get(), 2);
  EXPECT_EQ(fcntl(ends.ranks.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  internal::Reporter second(ends.ranks.get(), 2);
  EXPECT_THAT(second.Report({.activity = "a"}), IsOk());
  EXPECT_EQ(Received(ends.ours.get()), std::vector<std::string>{"rank=2 activity=a"});
}

TEST(ReporterTest, GoesNowhereWithoutALauncher) {
  internal::Reporter alone(std::nullopt, 0);
  EXPECT_THAT(alone.Report({.activity = "a"}), IsOk());
  EXPECT_THAT(alone.Report({.activity = "a b"}), MatchesStatus(StatusCode::kInvalidArgument, "activity"));
  const support::TemporaryDirectory folder;  // a program may have reused the number for a file of its own
  const UniqueFd file(open((folder.path() / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  internal::Reporter into_file(file.get(), 0);
  EXPECT_THAT(into_file.Report({.activity = "a"}), IsOk());
  EXPECT_EQ(lseek(file.get(), 0, SEEK_END), 0);
  Ends ends = MakeEnds();
  internal::Reporter orphan(ends.ranks.get(), 0);
  ends.ours.Reset();  // no SIGPIPE
  EXPECT_THAT(orphan.Report({.activity = "a"}), IsOk());
}

TEST(ReporterTest, AFullSocketDoesNotHoldTheRankUp) {
  const Ends ends = MakeEnds();
  internal::Reporter reporter(ends.ranks.get(), 0);
  const std::string line(100, 'x');
  while (send(ends.ranks.get(), line.data(), line.size(), MSG_DONTWAIT) > 0) {
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(reporter.Report({.activity = "a"}), IsOk());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
}

// --- The protocol with agents ---

template <typename Decode>
void ExpectWholeOnly(const std::string& bytes, const Decode& decode) {
  ASSERT_THAT(decode(bytes), IsOk());
  EXPECT_THAT(decode(bytes + "x"), MatchesStatus(StatusCode::kDataLoss, ""));
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_THAT(decode(bytes.substr(0, size)), MatchesStatus(StatusCode::kDataLoss, "")) << size;
  }
}

TEST(WatchProtocolTest, Messages) {
  const std::string settings = EncodeSettings({BindTo::kNuma, MapBy::kNuma, true, milliseconds(250)});
  ExpectWholeOnly(settings, DecodeSettings);
  const auto decoded = DecodeSettings(settings);
  EXPECT_TRUE(decoded->bind == BindTo::kNuma && decoded->map == MapBy::kNuma && decoded->report_bindings);
  EXPECT_EQ(decoded->sample, milliseconds(250));
  EXPECT_THAT(DecodeSettings(absl::StrCat("\x03", settings.substr(1))),
              MatchesStatus(StatusCode::kDataLoss, "settings"));

  const std::string report =
      EncodeReport({.rank = 9, .phase = Phase::kStoring, .activity = "a", .step = 0, .steps = {}, .loss = -1.5});
  ExpectWholeOnly(report, DecodeReport);
  EXPECT_EQ(DecodeReport(report)->phase, Phase::kStoring);
  EXPECT_EQ(DecodeReport(report)->step, 0);
  EXPECT_EQ(DecodeReport(report)->loss, -1.5);
  EXPECT_FALSE(DecodeReport(report)->steps);
  EXPECT_THAT(DecodeReport(EncodeReport({.rank = 9, .phase = Phase::kFailed})),
              MatchesStatus(StatusCode::kDataLoss, "phase"));
  EXPECT_THAT(DecodeReport(EncodeReport({.rank = -1})), MatchesStatus(StatusCode::kDataLoss, ""));

  const std::string usage = EncodeUsage({AtSecond(3), {{1, 2.5, 77}, {2, 0, 0, GpuUsage{0.5, 88}}}});
  ExpectWholeOnly(usage, DecodeUsage);
  EXPECT_EQ(DecodeUsage(usage)->when, AtSecond(3));
  EXPECT_EQ(DecodeUsage(usage)->ranks[0].cpu_seconds, 2.5);
  EXPECT_EQ(DecodeUsage(usage)->ranks[0].memory, 77u);
  EXPECT_FALSE(DecodeUsage(usage)->ranks[0].gpu);
  EXPECT_EQ(DecodeUsage(usage)->ranks[1].gpu->gpus, 0.5);
  EXPECT_EQ(DecodeUsage(usage)->ranks[1].gpu->memory, 88u);
  EXPECT_THAT(DecodeUsage(EncodeUsage({AtSecond(3), {{1, std::nan(""), 7}}})),
              MatchesStatus(StatusCode::kDataLoss, ""));
  EXPECT_THAT(DecodeUsage(EncodeUsage({AtSecond(3), {{1, 1, 7, GpuUsage{-1, 7}}}})),
              MatchesStatus(StatusCode::kDataLoss, ""));
}

// --- The board ---

TEST(JobBoardTest, StatusLine) {
  JobBoard board(4);
  EXPECT_EQ(board.StatusLine(AtSecond(0)), "0 of 4 ranks up");
  board.OnStarted();
  board.OnReport({.rank = 0, .activity = "training", .step = 12, .steps = 100, .loss = 2.5}, AtSecond(10));
  board.OnReport({.rank = 3, .step = 11}, AtSecond(8));
  EXPECT_EQ(board.StatusLine(AtSecond(10)),
            "4 of 4 ranks up, training, step 12 of 100, loss 2.5");  // one step is no lag
  board.OnReport({.rank = 3, .step = 10}, AtSecond(8));
  EXPECT_EQ(board.StatusLine(AtSecond(10)),
            "4 of 4 ranks up, training, step 12 of 100, loss 2.5, late: rank 3 (step 10)");
  EXPECT_EQ(board.StatusLine(AtSecond(8.5)).find("late"), std::string::npos);  // it spoke just now
  board.OnRankEnded(1);
  EXPECT_TRUE(board.StatusLine(AtSecond(10)).starts_with("3 of 4 ranks up"));
  board.OnStarted();  // again
  EXPECT_EQ(board.StatusLine(AtSecond(10)), "4 of 4 ranks up");
  JobBoard(1).OnReport({.rank = 1, .step = 1}, AtSecond(0));  // none of its ranks: passed over
}

TEST(JobBoardTest, MetricsAreInPrometheussFormat) {
  JobBoard board(2);
  board.set_job("ab");
  board.set_epoch(3);
  board.OnStarted();
  board.set_phase(Phase::kProcessing);
  board.OnReport({.rank = 0, .step = 12, .steps = 100, .loss = HUGE_VAL}, AtSecond(0));
  board.OnReport({.rank = 1, .step = 10}, AtSecond(0));
  const std::string text = board.Metrics();
  for (const char* line :
       {"gyre_job_phase{job=\"ab\",phase=\"PROCESSING\"} 1\n", "gyre_job_phase{job=\"ab\",phase=\"QUEUED\"} 0\n",
        "gyre_job_ranks_up{job=\"ab\"} 2\n", "gyre_job_restarts{job=\"ab\"} 3\n", "gyre_job_loss{job=\"ab\"} +Inf\n",
        "gyre_job_step{job=\"ab\",rank=\"first\"} 12\n", "gyre_job_step{job=\"ab\",rank=\"last\"} 10\n",
        "gyre_job_steps{job=\"ab\"} 100\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(text.find("exit_code"), std::string::npos);
  EXPECT_EQ(text.back(), '\n');
  board.set_end(42);
  EXPECT_NE(board.Metrics().find("gyre_job_exit_code{job=\"ab\"} 42\n"), std::string::npos);
}

// --- Usage ---

TEST(UsageTest, OfThisProcessAndWhatItStarted) {
  const auto before = UsageOfTrees({getpid(), 1 << 30});
  EXPECT_GT(before[0].memory, 100'000u);
  EXPECT_EQ(before[1].memory, 0u);
  volatile double sum = 0;
  while (UsageOfTrees({getpid()})[0].cpu_seconds < before[0].cpu_seconds + 0.05) {
    for (int i = 0; i < 100'000; ++i) sum = sum + 1;
  }
}

TEST(UsageTest, ATraceIsReadAsItWasWritten) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "trace.csv";
  auto trace = UsageTrace::Open(path, 2);
  ASSERT_THAT(trace, IsOk());
  trace->Begin(AtSecond(100));
  EXPECT_THAT(trace->Add(AtSecond(100), {1, 5, 1000}, ""), IsOk());  // the first look is of no interval
  EXPECT_THAT(trace->Add(AtSecond(101), {1, 6.5, 2000}, "loading"), IsOk());
  EXPECT_THAT(trace->Add(AtSecond(101), {1, 6.6, 2000}, "none"), IsOk());  // at once: no interval either
  EXPECT_THAT(trace->Add(AtSecond(103), {1, 6.5, 3000, GpuUsage{0.75, 99}}, ""), IsOk());
  EXPECT_THAT(trace->Add(AtSecond(103), {2, 6.5, 3000}, ""), IsOk());  // none of its ranks
  const auto rows = ReadUsageTrace(path);
  ASSERT_THAT(rows, IsOk());
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].seconds, 1);
  EXPECT_EQ((*rows)[0].cpus, 1.5);
  EXPECT_EQ((*rows)[0].activity, "loading");
  EXPECT_EQ((*rows)[1].interval, 2);
  EXPECT_EQ((*rows)[1].cpus, 0);
  EXPECT_EQ((*rows)[1].memory, 3000);
  EXPECT_EQ((*rows)[0].gpu_memory, 0);
  EXPECT_EQ((*rows)[1].gpus, 0.75);
  EXPECT_EQ((*rows)[1].gpu_memory, 99);
  EXPECT_THAT(UsageTrace::Open("/no/such/folder/t", 1), MatchesStatus(StatusCode::kNotFound, "--trace-usage /no"));
}

TEST(UsageTest, WhatIsNoTrace) {
  const std::string header = "seconds,interval,rank,cpus,memory_bytes,activity,gpus,gpu_memory_bytes\n";
  EXPECT_THAT(ParseUsageTrace("", "f"), MatchesStatus(StatusCode::kInvalidArgument, "f: the trace is empty"));
  EXPECT_THAT(ParseUsageTrace("1,1,0,1,1,\n", "f"), MatchesStatus(StatusCode::kInvalidArgument, "f:1: no row"));
  EXPECT_THAT(ParseUsageTrace(absl::StrCat(header, "1,1,0,1,1,a,,"), "f"), IsOk());
  for (const char* row : {"1,1,0,1,1", "1,1,0,1,1,a,,,b", "1,1,-1,1,1,,,", "x,1,0,1,1,,,", "1,1,0,nan,1,,,",
                          "1,1,0,1,-1,,,", "1,0,0,1,1,,,", "1,1,1000000,1,1,,,", "1,1,0,1,1,,x,", "1,1,0,1,1,,,-1"}) {
    EXPECT_THAT(ParseUsageTrace(absl::StrCat(header, row), "f"),
                MatchesStatus(StatusCode::kInvalidArgument, "f:2: no row"))
        << row;
  }
  EXPECT_THAT(ReadUsageTrace("/no/such/file"), MatchesStatus(StatusCode::kInvalidArgument, "cannot be read"));
}

TEST(UsageTest, ASampleIsTakenAgainOnceSomebodyIsBack) {
  struct Events final : WatchEvents {
    void OnReport(const RankReport&) override {}
    void OnUsage(TimePoint, const std::vector<RankUsage>&) override { ++looks; }
    void OnNote(std::string_view) override {}
    int looks = 0;
  } events;
  Poller poller;
  ASSERT_THAT(poller.Open(), IsOk());
  RankWatch watch(poller, events);
  ASSERT_THAT(watch.Prepare({.sample = seconds(1)}, 0, 1), IsOk());
  watch.OnStarted(0, getpid());
  watch.OnEnded(0);
  watch.OnTime(*watch.next());
  EXPECT_FALSE(watch.next());  // nobody lives
  watch.OnStarted(0, getpid());
  ASSERT_TRUE(watch.next());
  const int before = events.looks;
  watch.OnTime(*watch.next());
  EXPECT_EQ(events.looks, before + 1);
}

// --- Files ---

TEST(WholeFileTest, WhatIsNoRegularFileStaysWhatItIs) {
  const support::TemporaryDirectory folder;
  const std::string pipe = folder.path() / "pipe", link = folder.path() / "link", file = folder.path() / "file";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(WriteWholeFile(pipe, "nobody reads").ok());  // and it does not wait
  const UniqueFd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_THAT(WriteWholeFile(pipe, "text"), IsOk());
  char bytes[16];
  EXPECT_EQ(read(reader.get(), bytes, sizeof bytes), 4);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  ASSERT_THAT(WriteWholeFile(file, "a"), IsOk());
  std::filesystem::create_symlink(file, link);
  ASSERT_THAT(WriteWholeFile(link, "bc"), IsOk());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  std::ifstream now(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(now), {}), "bc");
  EXPECT_THAT(WriteWholeFile("/dev/null", "text"), IsOk());
}

TEST(ServerRanksTest, AFolderThatNobodyHoldsIsRemoved) {
  const support::TemporaryDirectory folder;
  const char* const usual = getenv("TMPDIR");
  const std::string before = usual != nullptr ? usual : "/tmp";
  setenv("TMPDIR", folder.path().c_str(), 1);
  const auto count = [&] {
    return std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator());
  };
  std::filesystem::create_directories(folder.path() / "gyre-servers-killed" / "deeper");
  std::filesystem::create_directory(folder.path() / "another");
  {
    ServerRanks first, second;
    ASSERT_THAT(first.Open("127.0.0.1", 0, 1), IsOk());
    EXPECT_EQ(count(), 2);
    ASSERT_THAT(second.Open("127.0.0.1", 0, 1), IsOk());
    EXPECT_EQ(count(), 3);  // the first one's stays
  }
  EXPECT_EQ(count(), 1);
  setenv("TMPDIR", before.c_str(), 1);
}

// --- Cooldown ---

TEST(HostCooldownTest, LostHostsAreLeftOutForAWhileWhereOthersSuffice) {
  using Placed = std::vector<HostRanks>;
  HostCooldown cooldown({{"a", 2}, {"b", 2}, {"c", 2}}, Placement::kPack, seconds(10));
  EXPECT_EQ(cooldown.Place(4, AtSecond(0)), (Placed{{"a", 0, 2}, {"b", 2, 2}}));
  cooldown.OnLost("a", AtSecond(0));
  EXPECT_EQ(cooldown.Place(4, AtSecond(9)), (Placed{{"b", 0, 2}, {"c", 2, 2}}));
  EXPECT_EQ(cooldown.LeftOut(4, AtSecond(9)), std::vector<std::string>{"a"});
  EXPECT_EQ(cooldown.Place(4, AtSecond(10)), (Placed{{"a", 0, 2}, {"b", 2, 2}}));
  cooldown.OnLost("c", AtSecond(5));
  EXPECT_EQ(cooldown.Place(4, AtSecond(9)), (Placed{{"a", 0, 2}, {"b", 2, 2}}));  // the others do not suffice
  EXPECT_TRUE(cooldown.LeftOut(4, AtSecond(9)).empty());
  EXPECT_EQ(cooldown.Place(2, AtSecond(9)), (Placed{{"b", 0, 2}}));
}

// --- Output ---

std::string ReadNow(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  char bytes[65536];
  const ssize_t count = read(fd, bytes, sizeof bytes);
  return count > 0 ? std::string(bytes, static_cast<size_t>(count)) : "";
}

TEST(WatchedOutputTest, OnlyTheChosenRanksShowAndTheirLastLinesAreKept) {
  Poller poller;
  ASSERT_THAT(poller.Open(), IsOk());
  const support::TemporaryDirectory folder;
  const Pipe out = MakePipe();
  const Pipe err = MakePipe();
  OutputMux mux(poller, {.dir = folder.path(), .only = {1}}, out.write.get(), err.write.get());
  const uint32_t first = *mux.AddRemote(0, "");
  const uint32_t second = *mux.AddRemote(1, "");
  mux.Feed(first, "hidden\n");
  mux.Feed(second, "shown\n");
  for (int i = 0; i < 500; ++i) mux.Feed(first + 1, absl::StrCat("error ", i, "\n"));
  mux.Flush();
  EXPECT_EQ(ReadNow(out.read.get()), "shown\n");
  EXPECT_EQ(ReadNow(err.read.get()), "");
  std::ifstream file(folder.path() / "rank.0.out");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "hidden\n");
  EXPECT_EQ(mux.LastLines(0, 2), (std::vector<std::string>{"error 498", "error 499"}));
  EXPECT_EQ(mux.LastLines(1, 10), std::vector<std::string>{"shown"});  // no errors: its output
  EXPECT_TRUE(mux.LastLines(7, 10).empty());
  const uint32_t again = *mux.AddRemote(0, "");  // its next life
  EXPECT_TRUE(mux.LastLines(0, 10).empty());
  mux.Feed(again, "back\n");
  EXPECT_EQ(mux.LastLines(0, 10), std::vector<std::string>{"back"});
}

TEST(WatchedOutputTest, TheStatusLineStaysBelow) {
  Poller poller;
  ASSERT_THAT(poller.Open(), IsOk());
  const Pipe both = MakePipe();
  OutputMux mux(poller, {}, both.write.get(), both.write.get());
  const uint32_t rank = *mux.AddRemote(0, "");
  mux.SetStatusLine("STATUS 1");
  mux.Flush();
  EXPECT_EQ(ReadNow(both.read.get()), "STATUS 1");
  mux.Flush();
  EXPECT_EQ(ReadNow(both.read.get()), "");
  mux.Feed(rank, "a line\n");
  mux.Flush();
  EXPECT_EQ(ReadNow(both.read.get()), "\r\x1b[Ka line\nSTATUS 1");
  mux.SetStatusLine("STATUS 2");
  mux.Flush();
  EXPECT_EQ(ReadNow(both.read.get()), "\r\x1b[KSTATUS 2");
  mux.Say("said");
  mux.SetStatusLine("");
  mux.Flush();
  EXPECT_EQ(ReadNow(both.read.get()), "\r\x1b[Kgyrerun: said\n");
}

// --- Options and stacks ---

TEST(WatchOptionsTest, AreTakenOrRefused) {
  const auto options = ParseOptions({"-np", "2", "--bind-to", "numa", "--map-by", "numa", "--ranks-filter", "4-6,1,5",
                                     "--stack-on-hang", "1.5", "--trace-usage", "f", "--placement", "spread", "p"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->watch.shown_ranks, (Cpus{1, 4, 5, 6}));
  EXPECT_EQ(options->watch.settings.sample, seconds(1));
  EXPECT_EQ(options->watch.stack_on_hang, milliseconds(1500));
  EXPECT_EQ(options->watch.placement, Placement::kSpread);
  EXPECT_EQ(ParseOptions({"-np", "2", "p"})->watch.settings.sample.count(), 0);
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--bind-to", "socket"},
                                             {"--ranks-filter", "2-1"},
                                             {"--ranks-filter", "a"},
                                             {"--ranks-filter", "1,,2"},
                                             {"--stack-on-hang", "0"},
                                             {"--trace-usage", "f", "--trace-interval", "0.001"},
                                             {"--host-cooldown", "-1"}}) {
    std::vector<std::string> arguments = {"-np", "2"};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    arguments.emplace_back("p");
    EXPECT_THAT(ParseOptions(arguments), MatchesStatus(StatusCode::kInvalidArgument, "; try: ")) << wrong.back();
  }
}

TEST(StacksTest, Targets) {
  EXPECT_EQ(ParseStackTarget("rank 3=12")->pid, 12);
  EXPECT_EQ(ParseStackTarget("rank 3=12")->label, "rank 3");
  for (const char* wrong : {"", "x", "0", "-3", "a=", "3=b"}) {
    EXPECT_THAT(ParseStackTarget(wrong), MatchesStatus(StatusCode::kInvalidArgument, "; try: ")) << wrong;
  }
}

}  // namespace

}  // namespace gyre::launch
