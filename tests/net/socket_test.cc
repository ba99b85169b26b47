#include "net/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "support/deadline.h"
#include "support/status_matchers.h"
#include "support/temporary.h"
#include "support/usage.h"

namespace gyre {
namespace {

using std::chrono::milliseconds;
using support::In;
using support::IsOk;
using support::MatchesStatus;
using support::OpenDescriptors;

struct Pair {
  UniqueFd a, b;
};

Pair StreamPair() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

TEST(Socket, TcpConnectsAndCarriesBytes) {
  const auto listener = ListenTcp({"127.0.0.1", 0}, 8, In(5000));
  ASSERT_THAT(listener, IsOk());
  const auto endpoint = LocalEndpoint(listener->get());
  ASSERT_THAT(endpoint, IsOk());
  EXPECT_NE(endpoint->port, 0);
  const auto client = ConnectTcp(*endpoint, In(2000));
  ASSERT_THAT(client, IsOk());
  const UniqueFd server(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(server);
  int on = 0;
  socklen_t size = sizeof(on);
  EXPECT_EQ(getsockopt(client->get(), IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
  EXPECT_NE(on, 0);
  EXPECT_NE(fcntl(client->get(), F_GETFD) & FD_CLOEXEC, 0);

  // More than the socket's buffers hold: both sides must wait for each other.
  const std::string sent(8 << 20, 'x');
  std::thread sender([&] { EXPECT_THAT(SendAll(client->get(), AsBytes(sent), In(10'000)), IsOk()); });
  std::string received(sent.size(), '\0');
  EXPECT_THAT(ReceiveExactly(server.get(), AsMutableBytes(received), In(10'000)), IsOk());
  sender.join();
  EXPECT_EQ(received, sent);
}

TEST(Socket, TcpErrorsNameTheEndpoint) {
  const auto listener = ListenTcp({"127.0.0.1", 0}, 8, In(5000));
  ASSERT_THAT(listener, IsOk());
  const Endpoint endpoint = *LocalEndpoint(listener->get());
  EXPECT_THAT(ListenTcp(endpoint, 8, In(5000)), MatchesStatus(absl::StatusCode::kAlreadyExists, ToString(endpoint)));
  Endpoint gone;
  {
    const auto other = ListenTcp({"127.0.0.1", 0}, 8, In(5000));
    gone = *LocalEndpoint(other->get());
  }
  EXPECT_THAT(ConnectTcp(gone, In(2000)), MatchesStatus(absl::StatusCode::kUnavailable, ToString(gone)));
}

TEST(Socket, ResolvesNames) {
  const auto listener = ListenTcp({"localhost", 0}, 8, In(5000));
  ASSERT_THAT(listener, IsOk());
  const uint16_t port = LocalEndpoint(listener->get())->port;
  EXPECT_THAT(ConnectTcp({"localhost", port}, In(5000)), IsOk());
  EXPECT_FALSE(ConnectTcp({"no.such.host.invalid", 1}, In(500)).ok());
  // Looking up takes longer than no time at all.
  EXPECT_THAT(ListenTcp({"no.such.host.invalid", 0}, 8, In(-1000)),
              MatchesStatus(absl::StatusCode::kDeadlineExceeded, "resolve no.such.host.invalid"));
}

TEST(Socket, UnixAbstractNamesLeaveNoFile) {
  const std::string name = absl::StrCat("@", support::UniqueName("socket-test"));
  {
    const auto listener = ListenUnix(name, 8);
    ASSERT_THAT(listener, IsOk());
    EXPECT_THAT(ListenUnix(name, 8), MatchesStatus(absl::StatusCode::kAlreadyExists, name));
    const auto client = ConnectUnix(name, In(1000));
    ASSERT_THAT(client, IsOk());
  }
  EXPECT_THAT(ConnectUnix(name, In(1000)), MatchesStatus(absl::StatusCode::kUnavailable, name));
}

TEST(Socket, UnixPathsAreForTheirUserOnly) {
  const support::TemporaryDirectory directory;
  const std::string path = directory.path() / "socket";
  const auto listener = ListenUnix(path, 8);
  ASSERT_THAT(listener, IsOk());
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_THAT(ConnectUnix(path, In(1000)), IsOk());
  EXPECT_THAT(ListenUnix(std::string(200, 'a'), 8), MatchesStatus(absl::StatusCode::kInvalidArgument, "107"));
}

TEST(Socket, UnixConnectWaitsForTheBacklogUntilItsDeadline) {
  const std::string name = absl::StrCat("@", support::UniqueName("socket-test"));
  const auto listener = ListenUnix(name, 0);
  ASSERT_THAT(listener, IsOk());
  std::vector<UniqueFd> clients;
  for (;;) {
    auto client = ConnectUnix(name, In(100));
    if (!client.ok()) {
      EXPECT_THAT(client, MatchesStatus(absl::StatusCode::kDeadlineExceeded, "backlog"));
      break;
    }
    clients.push_back(*std::move(client));
    ASSERT_LT(clients.size(), 10u);
  }
}

TEST(Socket, WaitsEndAtTheDeadline) {
  const Pair pair = StreamPair();
  std::string bytes(10, '\0');
  const TimePoint begin = std::chrono::steady_clock::now();
  EXPECT_THAT(ReceiveExactly(pair.a.get(), AsMutableBytes(bytes), In(60)),
              MatchesStatus(absl::StatusCode::kDeadlineExceeded, "receive"));
  // The other side reads nothing, so that a large send never ends.
  EXPECT_THAT(SendAll(pair.a.get(), AsBytes(std::string(16 << 20, 'x')), In(60)),
              MatchesStatus(absl::StatusCode::kDeadlineExceeded, "send"));
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, milliseconds(60));
  EXPECT_LT(took, milliseconds(2000));
}

TEST(Socket, TheOtherSidesEndIsUnavailable) {
  Pair pair = StreamPair();
  ASSERT_THAT(SendAll(pair.a.get(), AsBytes("abc"), In(1000)), IsOk());
  pair.a.Reset();
  std::string bytes(4, '\0');
  EXPECT_THAT(ReceiveExactly(pair.b.get(), AsMutableBytes(bytes), In(1000)),
              MatchesStatus(absl::StatusCode::kUnavailable, "closed"));
  EXPECT_THAT(SendAll(pair.b.get(), AsBytes("x"), In(1000)), MatchesStatus(absl::StatusCode::kUnavailable, "send"));
}

TEST(SocketFds, PassDescriptors) {
  const Pair pair = StreamPair();
  const UniqueFd memory(memfd_create("test", 0));
  ASSERT_EQ(write(memory.get(), "hello", 5), 5);
  const int fds[] = {memory.get(), memory.get()};
  ASSERT_THAT(SendWithFds(pair.a.get(), AsBytes("two"), fds, In(1000)), IsOk());
  ASSERT_THAT(SendAll(pair.a.get(), AsBytes("after"), In(1000)), IsOk());
  std::string bytes(3, '\0');
  const auto received = ReceiveWithFds(pair.b.get(), AsMutableBytes(bytes), 2, In(1000));
  ASSERT_THAT(received, IsOk());
  EXPECT_EQ(bytes, "two");
  ASSERT_EQ(received->size(), 2u);
  char content[5];
  EXPECT_EQ(pread((*received)[1].get(), content, 5, 0), 5);
  EXPECT_EQ(std::string(content, 5), "hello");
  EXPECT_NE(fcntl((*received)[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  std::string after(5, '\0');
  EXPECT_THAT(ReceiveExactly(pair.b.get(), AsMutableBytes(after), In(1000)), IsOk());
  EXPECT_EQ(after, "after");
}

TEST(SocketFds, LargeMessagesCarryThemToo) {
  const Pair pair = StreamPair();
  const std::string sent(2 << 20, 'y');
  const int fds[] = {pair.a.get()};
  std::thread sender([&] { EXPECT_THAT(SendWithFds(pair.a.get(), AsBytes(sent), fds, In(10'000)), IsOk()); });
  std::string bytes(sent.size(), '\0');
  const auto received = ReceiveWithFds(pair.b.get(), AsMutableBytes(bytes), 1, In(10'000));
  sender.join();
  ASSERT_THAT(received, IsOk());
  EXPECT_EQ(received->size(), 1u);
  EXPECT_EQ(bytes, sent);
}

TEST(SocketFds, TooManyAreRefusedAndClosed) {
  const Pair pair = StreamPair();
  const std::vector<int> fds(10, pair.a.get());
  const int64_t before = OpenDescriptors();
  ASSERT_THAT(SendWithFds(pair.a.get(), AsBytes("x"), fds, In(1000)), IsOk());
  std::string bytes(1, '\0');
  EXPECT_THAT(ReceiveWithFds(pair.b.get(), AsMutableBytes(bytes), 9, In(1000)),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "10 descriptors"));
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_THAT(SendWithFds(pair.a.get(), AsBytes("x"), std::vector<int>(65, 0), In(1000)),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "65"));
}

TEST(SocketFds, WhatTheKernelCutsIsAnErrorAndLeaksNothing) {
  const Pair pair = StreamPair();
  const std::vector<int> fds(8, pair.a.get());
  ASSERT_THAT(SendWithFds(pair.a.get(), AsBytes("x"), fds, In(1000)), IsOk());
  const int64_t before = OpenDescriptors();
  rlimit saved{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &saved), 0);
  // Room for some of them only. OpenDescriptors counts the descriptor of its own search too.
  rlimit tight = saved;
  tight.rlim_cur = static_cast<rlim_t>(before + 2);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  std::string bytes(1, '\0');
  const auto received = ReceiveWithFds(pair.b.get(), AsMutableBytes(bytes), 8, In(1000));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &saved), 0);
  EXPECT_THAT(received, MatchesStatus(absl::StatusCode::kInvalidArgument, "cut"));
  EXPECT_EQ(OpenDescriptors(), before);
}

}  // namespace
}  // namespace gyre
