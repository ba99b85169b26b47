#include "collectives/hierarchical/link_fit.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "base/fd.h"
#include "gtest/gtest.h"

namespace gyre::internal {
namespace {

constexpr int kPeer = 7;

// One end of a pair of sockets, which takes no more than `most` bytes at once.
class SocketStreams final : public Streams {
 public:
  SocketStreams(int fd, size_t most) : fd_(fd), most_(most) {}

  absl::StatusOr<size_t> Write(int, std::span<const Bytes> pieces) override {
    const Bytes piece = pieces[0].first(std::min(most_, pieces[0].size()));
    return Done(send(fd_.get(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL), false);
  }
  absl::StatusOr<size_t> Read(int, MutableBytes into) override {
    return Done(recv(fd_.get(), into.data(), std::min(most_, into.size()), MSG_DONTWAIT), true);
  }
  void AddWaits(int, bool to_read, bool to_write, std::vector<pollfd>& waits) const override {
    waits.push_back({fd_.get(), static_cast<short>((to_read ? POLLIN : 0) | (to_write ? POLLOUT : 0)), 0});
  }

 private:
  static absl::StatusOr<size_t> Done(ssize_t bytes, bool read) {
    if (bytes > 0) return static_cast<size_t>(bytes);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    return absl::UnavailableError(read ? "the peer is gone" : "nobody reads");
  }

  UniqueFd fd_;
  const size_t most_;
};

struct Pair {
  explicit Pair(size_t most = 1 << 20) {
    std::array<int, 2> fds{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()), 0);
    left = std::make_unique<SocketStreams>(fds[0], most);
    right = std::make_unique<SocketStreams>(fds[1], most);
  }
  std::unique_ptr<SocketStreams> left, right;
};

TimePoint In(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

// Numbers that a pair of sockets may show, on a machine that does other things too.
TEST(LinkFit, MeasuresAPairOfSockets) {
  for (const size_t most : {size_t{1000}, size_t{1} << 20}) {
    Pair pair(most);
    std::thread follower([&] { FollowLinkFit(*pair.right, kPeer, In(std::chrono::seconds(20))); });
    const auto fit = LeadLinkFit(*pair.left, kPeer, In(std::chrono::seconds(20)));
    follower.join();
    ASSERT_TRUE(fit.has_value());
    EXPECT_GT(fit->latency, 1e-7);
    EXPECT_LT(fit->latency, 1);
    EXPECT_GT(fit->bytes_per_second, 1e5);
    EXPECT_LT(fit->bytes_per_second, 1e12);
  }
}

TEST(LinkFit, WaitingForTheFollowerIsNoLatency) {
  Pair pair;
  std::thread follower([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // what is tested: that it comes late
    FollowLinkFit(*pair.right, kPeer, In(std::chrono::seconds(20)));
  });
  const auto fit = LeadLinkFit(*pair.left, kPeer, In(std::chrono::seconds(20)));
  follower.join();
  ASSERT_TRUE(fit.has_value());
  EXPECT_LT(fit->latency, 0.1);
}

TEST(LinkFit, AFollowerThatIsGoneEndsIt) {
  Pair pair;
  pair.right.reset();
  EXPECT_FALSE(LeadLinkFit(*pair.left, kPeer, In(std::chrono::seconds(20))).has_value());
}

TEST(LinkFit, WhoIsNotReachedIsNamed) {
  Pair pair;
  const std::array<int, 1> peers = {kPeer};
  EXPECT_EQ(FindUnreached(*pair.left, peers, In(std::chrono::milliseconds(20))), kPeer);  // it says nothing
  EXPECT_EQ(FindUnreached(*pair.right, peers, In(std::chrono::seconds(20))), std::nullopt);
  pair.right.reset();
  EXPECT_EQ(FindUnreached(*pair.left, peers, In(std::chrono::seconds(20))), kPeer);  // it is gone
}

TEST(LinkFit, AFollowerThatDoesNotComeIsGivenUpAtTheDeadline) {
  Pair pair;
  EXPECT_FALSE(LeadLinkFit(*pair.left, kPeer, In(std::chrono::milliseconds(20))).has_value());
  FollowLinkFit(*pair.left, kPeer, In(std::chrono::milliseconds(20)));  // ends too
}

TEST(LinkFit, AFollowerDoesNotFollowNonsense) {
  Pair pair;
  const std::array<std::byte, 8> much = {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{9}};
  const Bytes bytes(much);
  ASSERT_EQ(*pair.left->Write(kPeer, {&bytes, 1}), 8u);
  FollowLinkFit(*pair.right, kPeer, In(std::chrono::seconds(20)));  // ends before the deadline
  std::array<std::byte, 8> answer;
  EXPECT_EQ(*pair.left->Read(kPeer, answer), 0u);
}

TEST(LinkFit, MeasuresReduction) {
  EXPECT_GT(MeasureReduction(), 1e7);
}

}  // namespace
}  // namespace gyre::internal
