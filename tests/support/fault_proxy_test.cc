#include "support/fault_proxy.h"

#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>

#include "net/socket.h"
#include "support/deadline.h"
#include "support/status_matchers.h"

namespace gyre::support {
namespace {

using absl::StatusCode;

// A client and the target's end of its connection.
class FaultProxyTest : public testing::Test {
 protected:
  void SetUp() override {
    Endpoint any;
    any.host = "127.0.0.1";
    auto listener = ListenTcp(any, 16, In(1000));
    ASSERT_THAT(listener, IsOk());
    listener_ = *std::move(listener);
    proxy_ = std::make_unique<FaultProxy>(*LocalEndpoint(listener_.get()));
  }

  void Connect() {
    auto client = ConnectTcp(proxy_->endpoint(), In(5000));
    ASSERT_THAT(client, IsOk());
    client_ = *std::move(client);
    server_ = UniqueFd(accept(listener_.get(), nullptr, nullptr));
    ASSERT_TRUE(server_);
  }

  static std::string Receive(const UniqueFd& fd, size_t size, int ms = 10'000) {
    std::string text(size, '\0');
    const absl::Status status = ReceiveExactly(fd.get(), AsMutableBytes(text), In(ms));
    return status.ok() ? text : absl::StatusCodeToString(status.code());
  }

  void Say(const UniqueFd& fd, std::string_view text) {
    ASSERT_THAT(SendAll(fd.get(), AsBytes(text), In(5000)), IsOk());
  }

  UniqueFd listener_, client_, server_;
  std::unique_ptr<FaultProxy> proxy_;
};

TEST_F(FaultProxyTest, PassesBothWaysAndTheEnd) {
  Connect();
  Say(client_, "ping");
  EXPECT_EQ(Receive(server_, 4), "ping");
  Say(server_, "pong!");
  EXPECT_EQ(Receive(client_, 5), "pong!");
  EXPECT_EQ(proxy_->bytes(0, Direction::kToTarget), 4);
  EXPECT_EQ(proxy_->bytes(0, Direction::kToClient), 5);
  client_.Reset();
  EXPECT_EQ(Receive(server_, 1), "UNAVAILABLE");
}

TEST_F(FaultProxyTest, FlipsOneBitOfOneConnection) {
  proxy_->Set(Direction::kToTarget, {.kind = Fault::Kind::kFlip, .at = 2, .connection = 1});
  Connect();
  Say(client_, "abcd");
  EXPECT_EQ(Receive(server_, 4), "abcd");
  Connect();
  Say(client_, "a");
  Say(client_, "bcd");
  EXPECT_EQ(Receive(server_, 4), "abbd");
  EXPECT_EQ(proxy_->connections(), 2);
}

TEST_F(FaultProxyTest, Drops) {
  Connect();
  proxy_->Set(Direction::kToTarget, {.kind = Fault::Kind::kDrop, .at = 3});
  Say(client_, "abcd");
  EXPECT_EQ(Receive(server_, 3), "abc");
  EXPECT_EQ(Receive(server_, 1, 100), "DEADLINE_EXCEEDED");
  Say(server_, "still");
  EXPECT_EQ(Receive(client_, 5), "still");
}

TEST_F(FaultProxyTest, Delays) {
  Connect();
  proxy_->Set(Direction::kToTarget, {.kind = Fault::Kind::kDelay, .delay = std::chrono::milliseconds(200)});
  const TimePoint begin = std::chrono::steady_clock::now();
  Say(client_, "abcd");
  EXPECT_EQ(Receive(server_, 4), "abcd");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(200));
}

TEST_F(FaultProxyTest, Truncates) {
  proxy_->Set(Direction::kToTarget, {.kind = Fault::Kind::kTruncate, .at = 3});
  Connect();
  Say(client_, "abcd");
  EXPECT_EQ(Receive(server_, 3), "abc");
  EXPECT_EQ(Receive(server_, 1), "UNAVAILABLE");
  EXPECT_EQ(Receive(client_, 1), "UNAVAILABLE");
}

TEST_F(FaultProxyTest, ClosesHalf) {
  proxy_->Set(Direction::kToTarget, {.kind = Fault::Kind::kHalfClose, .at = 3});
  Connect();
  Say(client_, "abcd");
  EXPECT_EQ(Receive(server_, 3), "abc");
  EXPECT_EQ(Receive(server_, 1), "UNAVAILABLE");
  Say(server_, "still");
  EXPECT_EQ(Receive(client_, 5), "still");
}

TEST_F(FaultProxyTest, Resets) {
  Connect();
  proxy_->Set(Direction::kToTarget, {.kind = Fault::Kind::kReset});
  EXPECT_EQ(Receive(server_, 1), "UNAVAILABLE");
  EXPECT_EQ(Receive(client_, 1), "UNAVAILABLE");
}

TEST_F(FaultProxyTest, HoldsBackNoMoreThanItMust) {
  Connect();
  const std::string chunk(1 << 16, 'x');
  size_t sent = 0;
  for (TimePoint last = In(0); std::chrono::steady_clock::now() - last < std::chrono::milliseconds(300);) {
    const ssize_t taken = send(client_.get(), chunk.data(), chunk.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken > 0) sent += static_cast<size_t>(taken);
    if (taken > 0) last = std::chrono::steady_clock::now();
    if (taken <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_LT(sent, size_t{512} << 20);
  }
  EXPECT_EQ(Receive(server_, sent, 30'000), std::string(sent, 'x'));
}

}  // namespace
}  // namespace gyre::support
