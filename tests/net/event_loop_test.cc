#include "net/event_loop.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/deadline.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using std::chrono::milliseconds;
using support::In;
using support::IsOk;

class EventLoopTest : public testing::Test {
 protected:
  EventLoopTest() : loop_(*EventLoop::Create()) {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    a_.Reset(fds[0]);
    b_.Reset(fds[1]);
  }

  std::unique_ptr<EventLoop> loop_;
  UniqueFd a_, b_;
};

TEST_F(EventLoopTest, CallsWhatIsReady) {
  int calls = 0;
  ASSERT_THAT(loop_->Add(a_.get(), EPOLLIN, [&](uint32_t events) { calls += (events & EPOLLIN) != 0; }), IsOk());
  ASSERT_THAT(loop_->RunOnce(In(10)), IsOk());
  EXPECT_EQ(calls, 0);
  ASSERT_EQ(write(b_.get(), "x", 1), 1);
  ASSERT_THAT(loop_->RunOnce(In(1000)), IsOk());
  ASSERT_THAT(loop_->RunOnce(In(1000)), IsOk());  // level-triggered: still there
  EXPECT_EQ(calls, 2);
  ASSERT_THAT(loop_->Modify(a_.get(), EPOLLOUT), IsOk());
  ASSERT_THAT(loop_->RunOnce(In(1000)), IsOk());
  EXPECT_EQ(calls, 2);
}

TEST_F(EventLoopTest, ARemovedDescriptorIsNotCalledAgainEvenInTheSameRound) {
  // Both are ready; whichever comes first removes the other.
  int calls = 0;
  ASSERT_THAT(loop_->Add(a_.get(), EPOLLOUT,
                         [&](uint32_t) {
                           ++calls;
                           loop_->Remove(b_.get());
                           loop_->Remove(a_.get());
                         }),
              IsOk());
  ASSERT_THAT(loop_->Add(b_.get(), EPOLLOUT,
                         [&](uint32_t) {
                           ++calls;
                           loop_->Remove(a_.get());
                           loop_->Remove(b_.get());
                         }),
              IsOk());
  ASSERT_THAT(loop_->RunOnce(In(100)), IsOk());
  ASSERT_THAT(loop_->RunOnce(In(10)), IsOk());
  EXPECT_EQ(calls, 1);
}

TEST_F(EventLoopTest, TimersRunInOrderAndOnce) {
  std::vector<int> order;
  loop_->AddTimer(In(20), [&] { order.push_back(2); });
  loop_->AddTimer(In(5), [&] { order.push_back(1); });
  const auto cancelled = loop_->AddTimer(In(10), [&] { order.push_back(9); });
  loop_->CancelTimer(cancelled);
  const TimePoint end = In(1000);
  while (order.size() < 2 && std::chrono::steady_clock::now() < end) ASSERT_THAT(loop_->RunOnce(end), IsOk());
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  ASSERT_THAT(loop_->RunOnce(In(1)), IsOk());
  EXPECT_EQ(order.size(), 2u);
}

TEST_F(EventLoopTest, WakesFromAnotherThread) {
  std::thread waker([&] {
    std::this_thread::sleep_for(milliseconds(20));
    loop_->Wake();
  });
  const TimePoint begin = std::chrono::steady_clock::now();
  ASSERT_THAT(loop_->RunOnce(TimePoint::max()), IsOk());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(5000));
  waker.join();
}

TEST_F(EventLoopTest, IdlesWithoutWork) {
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  ASSERT_THAT(loop_->RunOnce(In(300)), IsOk());
  getrusage(RUSAGE_THREAD, &after);
  EXPECT_LE(after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw, 20);
}

}  // namespace
}  // namespace gyre
