// gyrerun with paths that are not what they should be, and what becomes of exceptions.
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "gyrerun_fixture.h"
#include "launch/last_catch.h"
#include "launch/status_file.h"
#include "launch/whole_file.h"
#include "support/program.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::launch {

namespace {

using std::chrono::seconds;
using support::IsOk;
using testing::HasSubstr;

class FilesTest : public testing::Test {
 protected:
  std::string Path(const char* name) const { return folder_.path() / name; }
  std::string Content(const std::string& path) const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t FileCount() const {
    const std::filesystem::directory_iterator files(folder_.path());
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }

  const support::TemporaryDirectory folder_;
};

TEST_F(FilesTest, ADirectoryWhereAFileBelongsIsAnErrorOfOneLine) {
  const std::string folder = Path("folder"), trace = Path("trace.csv");
  std::filesystem::create_directory(folder);
  std::ofstream(trace) << "seconds,interval,rank,cpus,memory_bytes,activity,gpus,gpu_memory_bytes\n1,1,0,1,1,,,\n";
  struct Case {
    std::vector<std::string> arguments;
    int code;
  };
  for (const Case& each : std::vector<Case>{{{"status", folder}, 65},
                                            {{"status", "/"}, 65},
                                            {{"recommend", folder}, 64},
                                            {{"recommend", trace, "--plot", folder}, 74},
                                            {{"-np", "1", "--status-file", folder, "echo", "up"}, 74},
                                            {{"-np", "1", "--metrics-file", folder, "echo", "up"}, 74},
                                            {{"-np", "1", "--trace-usage", folder, "echo", "up"}, 74},
                                            {{"-np", "1", "--timeline", folder, "echo", "up"}, 74},
                                            {{"-np", "1", "--output-dir", trace, "echo", "up"}, 74},
                                            {{"--hostfile", folder, "echo", "up"}, 65}}) {
    const Outcome outcome = RunToEnd(each.arguments);
    EXPECT_EQ(outcome.code, each.code) << testing::PrintToString(each.arguments) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("irectory")) << testing::PrintToString(each.arguments);
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
    EXPECT_EQ(outcome.out, "") << "nothing was started";
  }
  EXPECT_EQ(FileCount(), 2u) << "the folder and the trace";
}

TEST_F(FilesTest, AWorkingDirectoryThatIsGone) {
  support::Program shell({"sh", "-c", "mkdir \"$0\" && cd \"$0\" && rmdir \"$0\" && exec \"$@\"", Path("gone"),
                          GYRERUN_PATH, "-np", "1", "--timeline", "trace", "true"});
  ASSERT_TRUE(shell.WaitFor(seconds(20)));
  EXPECT_EQ(shell.exit_code(), 64) << shell.err();
  EXPECT_THAT(shell.err(), HasSubstr("no working directory"));
}

TEST_F(FilesTest, AStatusFileThatIsAPipeIsNotReadFirst) {
  const std::string pipe = Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(StatusFile::Open(pipe, {"job", 1, 1, 1}).ok()) << "nobody reads, and it does not wait";
}

TEST_F(FilesTest, ALinkWhereTheNewFileMightBeIsNotFollowed) {
  const std::string file = Path("status"), victim = Path("victim");
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, file + ".new");
  ASSERT_THAT(WriteWholeFile(file, "text"), IsOk());
  EXPECT_EQ(Content(victim), "precious");
  EXPECT_EQ(Content(file), "text");
}

TEST_F(FilesTest, AFileThatIsNotFinishedLeavesWhatWasThere) {
  const std::string file = Path("file");
  std::ofstream(file) << "old";
  {
    auto whole = WholeFile::Open(file);
    ASSERT_THAT(whole, IsOk());
    ASSERT_THAT(whole->Write(std::string(1 << 20, 'x')), IsOk());
    EXPECT_EQ(FileCount(), 2u);
    EXPECT_EQ(Content(file), "old");
  }
  EXPECT_EQ(Content(file), "old");
  EXPECT_EQ(FileCount(), 1u) << "the unfinished one is removed";
  auto whole = WholeFile::Open(file);
  ASSERT_THAT(whole, IsOk());
  ASSERT_THAT(whole->Write(std::string(1 << 20, 'x')), IsOk());
  ASSERT_THAT(whole->Finish(), IsOk());
  EXPECT_EQ(Content(file), std::string(1 << 20, 'x'));
  EXPECT_EQ(FileCount(), 1u);
}

TEST(LastCatchTest, AnExceptionIsSaidAndHasACodeOfItsOwn) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(RunWithLastCatch([] { return 3; }), 3);
  EXPECT_EQ(RunWithLastCatch([]() -> int { throw std::bad_alloc(); }), 70);
  EXPECT_EQ(RunWithLastCatch([]() -> int { throw std::runtime_error("what\nhappened"); }), 70);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("gyrerun: there is no memory left; try: "));
  EXPECT_THAT(said, HasSubstr("this should not happen: what happened; try: "));
}

}  // namespace

}  // namespace gyre::launch
