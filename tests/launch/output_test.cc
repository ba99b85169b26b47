// OutputSink and OutputMux against pipes of the test's own.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"
#include "launch/output_mux.h"
#include "launch/output_sink.h"
#include "launch/pipe.h"
#include "support/temporary.h"

namespace gyre::launch {

namespace {

std::string ReadAll(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string text;
  char bytes[65536];
  for (ssize_t count; (count = read(fd, bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<size_t>(count));
  return text;
}

class OutputTest : public testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    ASSERT_TRUE(poller_.Open().ok());
  }
  Poller poller_;
};

// A sink takes what fits, and the rest as the reader reads; our own descriptor stays blocking.
void FillAndDrain(int write_fd, int read_fd) {
  OutputSink sink(write_fd);
  const std::string big(3'000'000, 'x');
  sink.queue() = big;
  sink.Flush();
  EXPECT_GT(sink.pending(), 0u);
  EXPECT_EQ(fcntl(write_fd, F_GETFL) & O_NONBLOCK, 0);
  size_t got = 0;
  for (int i = 0; i < 1'000'000 && got < big.size(); ++i) {
    got += ReadAll(read_fd).size();
    sink.Flush();
  }
  EXPECT_EQ(got, big.size());
  EXPECT_EQ(sink.pending(), 0u);
  EXPECT_EQ(sink.error(), 0);
}

TEST_F(OutputTest, ASinkNeverBlocksOnAPipe) {
  const Pipe pipe = MakePipe();
  FillAndDrain(pipe.write.get(), pipe.read.get());
}

TEST_F(OutputTest, ASinkNeverBlocksOnASocket) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const UniqueFd a(ends[0]), b(ends[1]);
  FillAndDrain(a.get(), b.get());
}

TEST_F(OutputTest, ASinkWithoutReaderFails) {
  Pipe pipe = MakePipe();
  OutputSink sink(pipe.write.get());
  pipe.read.Reset();
  sink.queue() = std::string(1, 'x');
  sink.Flush();
  EXPECT_EQ(sink.error(), EPIPE);
  EXPECT_EQ(sink.pending(), 0u);
}

TEST_F(OutputTest, LinesOfTwoRanksStayWhole) {
  const Pipe out = MakePipe(), err = MakePipe();
  Pipe a = MakePipe(O_NONBLOCK), b = MakePipe(O_NONBLOCK), c = MakePipe(O_NONBLOCK), d = MakePipe(O_NONBLOCK);
  OutputMux mux(poller_, {}, out.write.get(), err.write.get());
  ASSERT_TRUE(mux.Add(0, std::move(a.read), std::move(c.read)).ok());
  ASSERT_TRUE(mux.Add(1, std::move(b.read), std::move(d.read)).ok());
  const auto put = [&](const Pipe& pipe, std::string_view text, uint32_t stream) {
    EXPECT_EQ(write(pipe.write.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    mux.OnReadable(stream);
    mux.Flush();
  };
  put(a, "one ", 0);
  put(b, "two\nthree", 2);
  put(a, "four\n", 0);
  put(c, "to error\n", 1);
  mux.CloseStreams();
  mux.Flush();
  EXPECT_EQ(mux.open_streams(), 0);
  EXPECT_EQ(ReadAll(out.read.get()), "two\none four\nthree");
  EXPECT_EQ(ReadAll(err.read.get()), "to error\n");
}

TEST_F(OutputTest, ASlowReaderHoldsTheRanksBack) {
  const Pipe out = MakePipe(), err = MakePipe();
  Pipe a = MakePipe(O_NONBLOCK), b = MakePipe(O_NONBLOCK);
  OutputMux mux(poller_, {}, out.write.get(), err.write.get());
  ASSERT_TRUE(mux.Add(0, std::move(a.read), std::move(b.read)).ok());
  const std::string lines(1 << 16, '\n');
  size_t taken = 0;
  for (int i = 0; i < 1000; ++i) {
    const ssize_t count = write(a.write.get(), lines.data(), lines.size());
    if (count > 0) taken += static_cast<size_t>(count);
    for (const PollKey& key : poller_.Wait(0)) {
      if (key.source == Source::kStream) mux.OnReadable(key.index);
    }
    mux.Flush();
  }
  EXPECT_LT(mux.pending(), size_t{512} << 10);
  EXPECT_LT(taken, size_t{1} << 20);  // of 64 MiB offered
  size_t got = 0;
  a.write.Reset();
  for (int i = 0; i < 1000 && got < taken; ++i) {
    got += ReadAll(out.read.get()).size();
    for (const PollKey& key : poller_.Wait(1)) {
      if (key.source == Source::kStream) mux.OnReadable(key.index);
    }
    mux.Flush();
  }
  EXPECT_EQ(got, taken);
}

// What becomes of a restarted rank's files is no reason to lose what it says.
TEST_F(OutputTest, ARankThatIsStartedAgainIsHeardWithoutItsFile) {
  const support::TemporaryDirectory folder;
  const std::string dir = folder.path();
  const Pipe out = MakePipe(), err = MakePipe();
  OutputMux mux(poller_, {.dir = dir}, out.write.get(), err.write.get());
  const auto first = mux.AddRemote(3, "a");
  ASSERT_TRUE(first.ok());
  mux.Feed(*first, "first\n");
  mux.Finish(*first);
  mux.Finish(*first + 1);
  std::filesystem::remove(dir + "/rank.3.err");
  std::filesystem::create_directory(dir + "/rank.3.err");
  Pipe a = MakePipe(O_NONBLOCK), b = MakePipe(O_NONBLOCK);
  ASSERT_TRUE(mux.Add(3, std::move(a.read), std::move(b.read), /*again=*/true).ok());
  for (const Pipe* pipe : {&a, &b}) EXPECT_EQ(write(pipe->write.get(), "again\n", 6), 6);
  mux.CloseStreams();
  mux.Flush();
  EXPECT_EQ(ReadAll(out.read.get()), "first\nagain\n");
  EXPECT_EQ(ReadAll(err.read.get()),
            "gyrerun: " + dir + "/rank.3.err: Is a directory; nothing more is written to this file\nagain\n");
  std::filesystem::create_directory(dir + "/rank.4.out");
  EXPECT_FALSE(mux.AddRemote(4, "a").ok());  // at its first start there must be a file
  std::ifstream file(dir + "/rank.3.out");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "first\nagain\n");
}

TEST_F(OutputTest, OneFileForBothIsOneSink) {
  const Pipe out = MakePipe();
  const UniqueFd same(dup(out.write.get()));
  OutputMux mux(poller_, {}, out.write.get(), same.get());
  mux.Say("hello");
  mux.Flush();
  EXPECT_EQ(ReadAll(out.read.get()), "gyrerun: hello\n");
}

}  // namespace

}  // namespace gyre::launch
