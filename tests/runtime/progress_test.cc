#include "runtime/progress.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/log.h"
#include "gtest/gtest.h"

namespace gyre::internal {
namespace {

// What only one thread can end, to whom others leave it. The first look of another thread takes until that one sleeps.
class LeftToOne final : public Pollable {
 public:
  explicit LeftToOne(const shm::Doorbell& doorbell) : doorbell_(doorbell) {}

  shm::Progress Poll() override {
    if (std::this_thread::get_id() == one_) {
      ended_ = std::chrono::steady_clock::now();
      return shm::Progress::kDone;
    }
    if (!looked_at_.exchange(true)) {
      while (doorbell_.sleepers.load() == 0) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // it looks once more before it sleeps
    }
    left_ = std::chrono::steady_clock::now();
    return shm::Progress::kNone;
  }
  bool Check(TimePoint) override { return false; }
  void StartClock(TimePoint) override {}
  TimePoint deadline() const override { return TimePoint::max(); }

  bool looked_at() const { return looked_at_.load(); }

  // From the last look of another thread on. REQUIRES: done.
  Duration slept() const { return ended_ - left_; }

 private:
  const shm::Doorbell& doorbell_;
  const std::thread::id one_ = std::this_thread::get_id();
  std::atomic<bool> looked_at_{false};
  TimePoint left_, ended_;
};

// The background thread drives a lane when another one comes to help, finds it driven and goes to sleep. The background
// thread then rests, and leaves it all to the helper: which must not sleep on.
TEST(Progress, WhoeverHelpsIsWokenWhenTheBackgroundRests) {
  const auto node =
      shm::Node::Create({.rank = 0}, *shm::OwnMemory::Create(0, 1 << 20), {}, MakeLogger(LogLevel::kOff, "test"))
          .value();
  const auto lane = std::make_shared<Lane>();
  Progress progress(node, shm::WaitPolicy::Background());
  std::vector<Duration> slept;
  for (int round = 0; round < 5; ++round) {
    const auto operation = std::make_shared<LeftToOne>(node->block(0).doorbell);
    progress.Start(lane, *lane, operation);
    while (!operation->looked_at()) std::this_thread::yield();
    progress.Wait(*operation);
    slept.push_back(operation->slept());
  }
  std::ranges::sort(slept);
  EXPECT_LT(slept[2], std::chrono::milliseconds(20)) << "the longest sleep is 50 ms";
}

}  // namespace
}  // namespace gyre::internal
