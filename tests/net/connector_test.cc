#include "net/connector.h"

#include <fcntl.h>

#include <thread>

#include "net/job_identity.h"
#include "net/socket.h"
#include "support/deadline.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::In;
using support::IsOk;
using support::MatchesStatus;

class ConnectorTest : public testing::TestWithParam<const char*> {
 protected:
  // Reserves a port; nobody listens there yet.
  void SetUp() override {
    Endpoint any;
    any.host = GetParam();
    auto listener = ListenTcp(any, 16, In(1000));
    ASSERT_THAT(listener, IsOk());
    options_.what = "rank 0";
    options_.endpoint = *LocalEndpoint(listener->get());
    options_.deadline = In(20'000);
    loop_ = *EventLoop::Create();
  }

  void Listen() {
    auto listener = ListenTcp(options_.endpoint, 16, In(1000));
    ASSERT_THAT(listener, IsOk());
    auto server = AuthenticatingListener::Create(*loop_, *std::move(listener), TestRank(0), kTestSecret, {},
                                                 [this](AcceptedPeer peer) { accepted_.push_back(std::move(peer)); });
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
  }

  void Connect(const HandshakeIdentity& self = TestRank(5), const std::string& secret = kTestSecret) {
    connector_ = std::make_unique<Connector>(
        *loop_, options_, self, secret,
        [this](absl::StatusOr<Connected> result) {
          EXPECT_FALSE(result_.has_value());
          result_ = std::move(result);
          connector_.reset();  // from within: allowed
        },
        [this](const absl::Status& why) { failures_.push_back(why); });
  }

  void RunUntilDone(TimePoint deadline = In(30'000)) {
    while (!result_ && std::chrono::steady_clock::now() < deadline) ASSERT_THAT(loop_->RunOnce(deadline), IsOk());
  }

  ConnectorOptions options_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<AuthenticatingListener> server_;
  std::vector<AcceptedPeer> accepted_;
  std::unique_ptr<Connector> connector_;
  std::optional<absl::StatusOr<Connected>> result_;
  std::vector<absl::Status> failures_;
};
INSTANTIATE_TEST_SUITE_P(, ConnectorTest, testing::Values("127.0.0.1", "::1"),
                         [](const auto& info) { return std::string(info.param) == "::1" ? "V6" : "V4"; });

TEST_P(ConnectorTest, ConnectsAndProvesItself) {
  Listen();
  Connect();
  RunUntilDone();
  ASSERT_TRUE(result_.has_value());
  ASSERT_THAT(*result_, IsOk());
  EXPECT_EQ((*result_)->peer, TestRank(0));
  EXPECT_NE(fcntl((*result_)->fd.get(), F_GETFL) & O_NONBLOCK, 0);
  while (accepted_.empty()) ASSERT_THAT(loop_->RunOnce(In(1000)), IsOk());
  EXPECT_EQ(accepted_.front().peer, TestRank(5));
  std::string text(5, '\0');
  ASSERT_THAT(SendAll((*result_)->fd.get(), AsBytes("hello"), In(1000)), IsOk());
  ASSERT_THAT(ReceiveExactly(accepted_.front().fd.get(), AsMutableBytes(text), In(5000)), IsOk());
  EXPECT_EQ(text, "hello");
}

TEST_P(ConnectorTest, TriesAgainUntilSomebodyListens) {
  Connect();
  RunUntilDone(In(100));
  ASSERT_FALSE(result_.has_value());
  ASSERT_FALSE(failures_.empty());
  EXPECT_THAT(failures_.front(), MatchesStatus(StatusCode::kUnavailable, ""));
  Listen();
  RunUntilDone();
  ASSERT_TRUE(result_.has_value());
  EXPECT_THAT(*result_, IsOk());
}

TEST_P(ConnectorTest, SaysAtTheDeadlineWhatWasWrong) {
  options_.deadline = In(200);
  const TimePoint begin = std::chrono::steady_clock::now();
  Connect();
  RunUntilDone();
  ASSERT_TRUE(result_.has_value());
  EXPECT_THAT(*result_, MatchesStatus(StatusCode::kDeadlineExceeded, "rank 0 was not reached in time: connect"));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(190));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_P(ConnectorTest, ASilentListenerIsTriedAgain) {
  const auto silent = ListenTcp(options_.endpoint, 16, In(1000));  // accepted by the kernel, answered by nobody
  ASSERT_THAT(silent, IsOk());
  options_.attempt_timeout = std::chrono::milliseconds(50);
  options_.deadline = In(500);
  Connect();
  RunUntilDone();
  ASSERT_TRUE(result_.has_value());
  EXPECT_THAT(*result_, MatchesStatus(StatusCode::kDeadlineExceeded, "timed out"));
  EXPECT_GE(failures_.size(), 2u);
}

TEST_P(ConnectorTest, ARefusalIsFinal) {
  Listen();
  for (const auto& [epoch, code] : {std::pair(0, StatusCode::kAborted), std::pair(2, StatusCode::kCancelled)}) {
    Connect(TestRank(5, static_cast<uint64_t>(epoch)));
    RunUntilDone();
    ASSERT_TRUE(result_.has_value());
    EXPECT_THAT(*result_, MatchesStatus(code, "rank 0: this job is in epoch"));
    EXPECT_TRUE(failures_.empty());
    result_.reset();
  }
  Connect(TestRank(5), "another secret");
  RunUntilDone();
  ASSERT_TRUE(result_.has_value());
  EXPECT_THAT(*result_, MatchesStatus(StatusCode::kUnauthenticated, "secret"));
}

TEST_P(ConnectorTest, ANameIsNoAddress) {
  options_.endpoint.host = "localhost";
  Connect();
  RunUntilDone();
  ASSERT_TRUE(result_.has_value());
  EXPECT_THAT(*result_, MatchesStatus(StatusCode::kInvalidArgument, "localhost"));
}

TEST_P(ConnectorTest, GivesUpInSilenceWhenDestroyed) {
  Listen();
  for (int turns = 0; turns < 6; ++turns) {
    Connect();
    for (int turn = 0; turn < turns && !result_; ++turn) ASSERT_THAT(loop_->RunOnce(In(100)), IsOk());
    connector_.reset();
    const bool was_done = result_.has_value();
    for (int turn = 0; turn < 5; ++turn) ASSERT_THAT(loop_->RunOnce(In(5)), IsOk());
    EXPECT_EQ(result_.has_value(), was_done);
    result_.reset();
  }
}

}  // namespace
}  // namespace gyre
