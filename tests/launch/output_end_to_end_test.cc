// What becomes of the ranks' output.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>

#include "gtest/gtest.h"
#include "gyrerun_fixture.h"
#include "support/temporary.h"

namespace gyre::launch {

namespace {

using std::chrono::seconds;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(GyrerunOutputTest, TwoFastWritersAreNeverTorn) {
  const Outcome outcome =
      RunToEnd({"-np", "2", "sh", "-c", "yes $GYRE_RANK-abcdefghijklmnopqrstuvwxyz-$GYRE_RANK | head -n 100000"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto lines = Lines(outcome.out);
  ASSERT_EQ(lines.size(), 200'000u);
  for (const std::string& line : lines) {
    ASSERT_TRUE(line == "0-abcdefghijklmnopqrstuvwxyz-0" || line == "1-abcdefghijklmnopqrstuvwxyz-1") << line;
  }
}

TEST(GyrerunOutputTest, NorWhenOutputAndErrorAreOnePipe) {
  const Outcome outcome =
      RunToEnd({"-np", "2", "sh", "-c", "yes out-line | head -n 50000 & yes error-line | head -n 50000 >&2; wait"},
               {.join_output = true});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto lines = Lines(outcome.out);
  ASSERT_EQ(lines.size(), 200'000u);
  for (const std::string& line : lines) ASSERT_TRUE(line == "out-line" || line == "error-line") << line;
}

TEST(GyrerunOutputTest, TagsNameRankAndStream) {
  const Outcome outcome = RunToEnd({"-np", "2", "--tag-output", "sh", "-c", "echo a; echo b >&2; printf unfinished"});
  const auto lines = Lines(outcome.out);
  ASSERT_EQ(lines.size(), 4u) << outcome.out;
  for (const char* line : {"[0]<stdout>:a", "[1]<stdout>:a", "[0]<stdout>:unfinished", "[1]<stdout>:unfinished"}) {
    EXPECT_EQ(std::count(lines.begin(), lines.end(), line), 1) << outcome.out;
  }
  EXPECT_TRUE(outcome.err == "[0]<stderr>:b\n[1]<stderr>:b\n" || outcome.err == "[1]<stderr>:b\n[0]<stderr>:b\n");
}

TEST(GyrerunOutputTest, TimeStamps) {
  const Outcome outcome = RunToEnd({"-np", "1", "--timestamp-output", "--tag-output", "echo", "x"});
  ASSERT_EQ(outcome.out.size(), std::string("2026-01-31T12:34:56.789 [0]<stdout>:x\n").size()) << outcome.out;
  EXPECT_EQ(outcome.out.substr(23), " [0]<stdout>:x\n");
}

TEST(GyrerunOutputTest, BytesPassUnchanged) {
  std::string text;
  for (int i = 0; i < 3'000'000; ++i) text += static_cast<char>((i * 2654435761u) >> 13);
  const Outcome outcome = RunToEnd({"-np", "1", "cat"}, {.input = text});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out == text) << outcome.out.size();
}

TEST(GyrerunOutputTest, AVeryLongLinePasses) {
  const std::string text(5 << 20, 'x');
  const Outcome outcome = RunToEnd({"-np", "1", "cat"}, {.input = text});
  EXPECT_TRUE(outcome.out == text) << outcome.out.size();
}

TEST(GyrerunOutputTest, FilesHoldEachRanksOwn) {
  const support::TemporaryDirectory folder;
  const std::string dir = folder.path().string() + "/deep/down";
  const Outcome outcome = RunToEnd(
      {"-np", "2", "--tag-output", "--output-dir", dir, "sh", "-c", "echo out $GYRE_RANK; printf err$GYRE_RANK >&2"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(ReadFile(dir + "/rank.0.out"), "out 0\n");
  EXPECT_EQ(ReadFile(dir + "/rank.1.out"), "out 1\n");
  EXPECT_EQ(ReadFile(dir + "/rank.1.err"), "err1");
  EXPECT_NE(outcome.out.find("[1]<stdout>:out 1\n"), std::string::npos) << outcome.out;
}

TEST(GyrerunOutputTest, AnOutputDirThatCannotBeIs74) {
  const Outcome outcome = RunToEnd({"-np", "2", "--output-dir", "/dev/null/dir", "true"});
  EXPECT_EQ(outcome.code, 74);
  EXPECT_NE(outcome.err.find("; try: "), std::string::npos) << outcome.err;
}

TEST(GyrerunOutputTest, WithoutReaderTheJobEnds) {
  const Outcome outcome =
      RunToEnd({"-np", "2", "sh", "-c", "while echo line; do sleep 0.01; done; sleep 100"}, {.close_output = true});
  EXPECT_EQ(outcome.code, 128 + SIGPIPE);
  EXPECT_NE(outcome.err.find("Broken pipe"), std::string::npos) << outcome.err;
}

TEST(GyrerunOutputTest, AReaderThatHangsDoesNotKeepSignalsOut) {
  Gyrerun gyrerun({"-np", "2", "yes"}, {.read_output = false});
  usleep(500'000);  // long enough to fill every buffer there is
  gyrerun.Signal(SIGTERM);
  const Outcome outcome = gyrerun.Wait();
  EXPECT_EQ(outcome.code, 128 + SIGTERM) << outcome.err;
  EXPECT_LT(outcome.took, seconds(15));
  EXPECT_TRUE(gyrerun.Alive().empty());
}

TEST(GyrerunOutputTest, OutputOfALateGrandchildIsNotWaitedForForEver) {
  const Outcome outcome = RunToEnd({"-np", "1", "sh", "-c", "setsid sleep 1000 & echo done"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "done\n");
  EXPECT_LT(outcome.took, seconds(10));
}

}  // namespace

}  // namespace gyre::launch
