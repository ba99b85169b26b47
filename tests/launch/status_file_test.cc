// The status file's phases, its content, the termination log, and the pauses between restarts.
#include "launch/status_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "gtest/gtest.h"
#include "launch/restarts.h"
#include "launch/termination_log.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::launch {

namespace {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using support::IsOk;
using support::MatchesStatus;

constexpr Phase kAll[] = {Phase::kQueued, Phase::kDeploying, Phase::kDownloading, Phase::kProcessing, Phase::kStoring,
                          Phase::kHalted, Phase::kResumed,   Phase::kCompleted,   Phase::kFailed};

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(StatusFileTest, WhatIsOverStaysSo) {
  for (const Phase to : kAll) {
    EXPECT_FALSE(IsLegal(Phase::kCompleted, to) || IsLegal(Phase::kFailed, to));
    EXPECT_EQ(IsLegal(Phase::kHalted, to), to == Phase::kResumed);
    EXPECT_FALSE(IsLegal(to, Phase::kQueued));
    const bool works = to == Phase::kDownloading || to == Phase::kStoring;
    EXPECT_EQ(IsLegal(to, Phase::kProcessing), to == Phase::kDeploying || works);
    EXPECT_EQ(IsLegal(Phase::kProcessing, to),
              works || to == Phase::kDeploying || EndPhase(0) == to || EndPhase(1) == to || EndPhase(75) == to);
  }
  EXPECT_EQ(EndPhase(0), Phase::kCompleted);
  EXPECT_EQ(EndPhase(75), Phase::kHalted);
  EXPECT_EQ(EndPhase(1), Phase::kFailed);
}

TEST(StatusFileTest, IllegalStepsAreRefusedAndNotWritten) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "status";
  auto file = StatusFile::Open(path, {"job", 4, 2, getpid()});
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(file->Enter(Phase::kCompleted),
              MatchesStatus(StatusCode::kFailedPrecondition, "no job goes from QUEUED to COMPLETED"));
  EXPECT_TRUE(DescribeStatusFile(path)->starts_with("QUEUED since 2")) << *DescribeStatusFile(path);
  EXPECT_THAT(file->Enter(Phase::kDeploying), IsOk());
  EXPECT_THAT(file->Enter(Phase::kProcessing), IsOk());
  file->set_epoch(3);
  file->set_end(75, {"one\nline", "\xff no text"});
  EXPECT_THAT(file->Enter(Phase::kHalted), IsOk());
  const std::string text = *DescribeStatusFile(path);
  EXPECT_NE(text.find(": job job, 4 ranks on 2 hosts, 3 restarts\none line\n"), std::string::npos) << text;
  const std::filesystem::directory_iterator files(folder.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "nothing is left beside it";
  auto resumed = StatusFile::Open(path, {"next", 1, 1, getpid()});
  ASSERT_THAT(resumed, IsOk());
  EXPECT_TRUE(DescribeStatusFile(path)->starts_with("RESUMED")) << *DescribeStatusFile(path);
  EXPECT_NE(DescribeStatusFile(path)->find("  HALTED\n"), std::string::npos);
}

TEST(StatusFileTest, WhatIsNoneIsNotTakenForOne) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "status";
  for (const char* text : {"", "{}", "[1]", "{\"phase\": 3}", "{\"phase\": \"LOST\"}", "\xff\xfe"}) {
    std::ofstream(path) << text;
    EXPECT_THAT(DescribeStatusFile(path), MatchesStatus(StatusCode::kInvalidArgument, "; try: ")) << text;
    EXPECT_THAT(StatusFile::Open(path, {"job", 1, 1, 1}), IsOk());
    const std::string whole = ReadWhole(path);
    for (size_t cut = 2; cut < whole.size(); cut += 7) {
      std::ofstream(path) << whole.substr(0, whole.size() - cut);
      EXPECT_THAT(DescribeStatusFile(path), MatchesStatus(StatusCode::kInvalidArgument, "no status file"));
    }
  }
  EXPECT_FALSE(StatusFile::Open("/no/such/folder/status", {"job", 1, 1, 1}).ok());
}

TEST(TerminationLogTest, ItIsReplacedCutOffAndNeverMade) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "log";
  WriteTerminationLog(path, "text");
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  std::ofstream(path) << std::string(5000, 'o');
  WriteTerminationLog(path, "text");
  EXPECT_EQ(ReadWhole(path), "text");
  WriteTerminationLog(path, std::string(5000, 'n'));
  EXPECT_EQ(ReadWhole(path), std::string(4096, 'n'));
  ASSERT_EQ(mkfifo((folder.path() / "fifo").c_str(), 0600), 0);
  WriteTerminationLog(folder.path() / "fifo", "does not wait for a reader");
}

TEST(RestartPauseTest, DoublesToAMinuteGiveOrTakeHalf) {
  EXPECT_EQ(RestartPause(1, seconds(1), 0.5), seconds(1));
  EXPECT_EQ(RestartPause(1, seconds(1), 0), milliseconds(500));
  EXPECT_EQ(RestartPause(3, seconds(1), 0.999), milliseconds(5996));
  EXPECT_EQ(RestartPause(100, seconds(1), 0.5), seconds(60));
  EXPECT_EQ(RestartPause(1'000'000, seconds(100), 0.5), seconds(100));
  EXPECT_EQ(RestartPause(5, seconds(0), 0.5), seconds(0));
}

}  // namespace

}  // namespace gyre::launch
