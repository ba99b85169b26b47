#include "collectives/lane.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace gyre::internal {
namespace {

// Ends after `polls` looks; tells if two threads ever drove at once.
class Fake final : public Pollable {
 public:
  Fake(int polls, std::atomic<int>& drivers, std::vector<int>& order, int number)
      : polls_(polls), drivers_(drivers), order_(order), number_(number) {}

  shm::Progress Poll() override {
    EXPECT_EQ(drivers_.fetch_add(1), 0) << "two drivers";
    const bool done = --polls_ <= 0;
    if (done) order_.push_back(number_);  // guarded by the lane
    drivers_.fetch_sub(1);
    return done ? shm::Progress::kDone : shm::Progress::kNone;
  }
  bool Check(TimePoint now) override {
    ++checks_;
    return now >= expiry_;
  }
  void StartClock(TimePoint now) override { expiry_ = now; }
  TimePoint deadline() const override {
    ++asked_;
    return expiry_;
  }

  // How often somebody wanted to know something of it, unless that it goes on.
  int looks() const { return checks_ + asked_; }

 private:
  TimePoint expiry_ = TimePoint::max();
  int checks_ = 0;
  mutable int asked_ = 0;
  int polls_;
  std::atomic<int>& drivers_;
  std::vector<int>& order_;
  const int number_;
};

// Makes progress for ever.
class Busy final : public Pollable {
 public:
  shm::Progress Poll() override { return shm::Progress::kSome; }
  bool Check(TimePoint now) override { return now >= expiry_; }
  void StartClock(TimePoint now) override { expiry_ = now; }
  TimePoint deadline() const override { return expiry_; }

 private:
  TimePoint expiry_ = TimePoint::max();
};

TEST(Lane, RunsOneAfterTheOtherWhoeverDrives) {
  Lane lane;
  std::atomic<int> drivers{0};
  std::vector<int> order;
  std::vector<std::shared_ptr<Fake>> operations;
  for (int i = 0; i < 300; ++i) {
    operations.push_back(std::make_shared<Fake>(1 + i % 5, drivers, order, i));
    lane.Enqueue(operations.back());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&lane] {
      while (!lane.empty()) lane.Drive(nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(order[static_cast<size_t>(i)], i);
    EXPECT_TRUE(operations[static_cast<size_t>(i)]->done());
  }
}

TEST(Lane, EndsWhatIsLateBehindTheFirst) {
  Lane lane;
  std::atomic<int> drivers{0};
  std::vector<int> order;
  std::vector<std::shared_ptr<Fake>> operations;
  for (int i = 0; i < 5; ++i) operations.push_back(std::make_shared<Fake>(10, drivers, order, i));
  const TimePoint now = std::chrono::steady_clock::now(), soon = now + std::chrono::seconds(1);
  const TimePoint later = now + std::chrono::seconds(2);
  operations[1]->StartClock(soon);
  operations[3]->StartClock(soon);
  operations[4]->StartClock(later);
  for (const auto& operation : operations) lane.Enqueue(operation);
  EXPECT_EQ(lane.Drive(&now), shm::Progress::kNone);
  EXPECT_EQ(lane.NextDeadline(), soon);
  EXPECT_EQ(lane.Drive(&soon), shm::Progress::kDone) << "did not say that one has ended";
  for (const int i : {0, 1, 2, 3, 4}) EXPECT_EQ(operations[static_cast<size_t>(i)]->done(), i == 1 || i == 3) << i;
  EXPECT_EQ(lane.NextDeadline(), later);
  while (!lane.empty()) lane.Drive(nullptr);
  EXPECT_EQ(order, (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(lane.NextDeadline(), TimePoint::max());
}

TEST(Lane, ALookCostsTheSameHoweverManyAreQueued) {
  constexpr int kQueued = 4000;
  Lane lane;
  std::atomic<int> drivers{0};
  std::vector<int> order;
  std::vector<std::shared_ptr<Fake>> operations;
  const TimePoint now = std::chrono::steady_clock::now();
  for (int i = 0; i < kQueued; ++i) {
    operations.push_back(std::make_shared<Fake>(1'000'000, drivers, order, i));
    operations.back()->StartClock(now + std::chrono::seconds(kQueued - i));
    lane.Enqueue(operations.back());
  }
  const auto looks = [&] {
    int sum = 0;
    for (const auto& operation : operations) sum += operation->looks();
    return sum;
  };
  const int before = looks();
  for (int look = 0; look < 100; ++look) {
    ASSERT_EQ(lane.Drive(&now), shm::Progress::kNone);
    ASSERT_EQ(lane.NextDeadline(), now + std::chrono::seconds(1));
  }
  EXPECT_LE(looks() - before, 2 * 100) << "at the first alone: its check and its deadline";
}

TEST(Lane, WhoTookItIdleEndsWhatIsLateMeanwhile) {
  Lane lane;
  std::atomic<int> drivers{0};
  std::vector<int> order;
  ASSERT_TRUE(lane.TryTakeIdle());
  auto late = std::make_shared<Fake>(1, drivers, order, 0), patient = std::make_shared<Fake>(1, drivers, order, 1);
  const TimePoint now = std::chrono::steady_clock::now(), soon = now + std::chrono::seconds(1);
  late->StartClock(soon);
  lane.Enqueue(late);
  lane.Enqueue(patient);
  EXPECT_FALSE(lane.CheckQueued(now));
  EXPECT_TRUE(lane.CheckQueued(soon));
  EXPECT_TRUE(late->done());
  EXPECT_FALSE(patient->done());
  EXPECT_TRUE(lane.Release());
  EXPECT_EQ(lane.Drive(nullptr), shm::Progress::kDone);
  EXPECT_EQ(order, std::vector<int>{1});
}

// Also while it makes progress.
TEST(Lane, ChecksTheFirst) {
  Lane lane;
  auto busy = std::make_shared<Busy>();
  lane.Enqueue(busy);
  const TimePoint now = std::chrono::steady_clock::now();
  EXPECT_EQ(lane.Drive(&now), shm::Progress::kSome);
  busy->StartClock(now);
  EXPECT_EQ(lane.Drive(&now), shm::Progress::kDone);
  EXPECT_TRUE(busy->done());
  EXPECT_TRUE(lane.empty());
}

TEST(Lane, IsTakenOnlyWhenIdle) {
  Lane lane;
  std::atomic<int> drivers{0};
  std::vector<int> order;
  ASSERT_TRUE(lane.TryTakeIdle());
  EXPECT_FALSE(lane.TryTakeIdle());
  auto operation = std::make_shared<Fake>(1, drivers, order, 0);
  lane.Enqueue(operation);
  EXPECT_EQ(lane.Drive(nullptr), shm::Progress::kNone) << "driven while taken";
  EXPECT_TRUE(lane.Release()) << "did not say that something is queued";
  EXPECT_FALSE(lane.TryTakeIdle());
  EXPECT_EQ(lane.Drive(nullptr), shm::Progress::kDone);
  ASSERT_TRUE(lane.TryTakeIdle());
  EXPECT_FALSE(lane.Release());
}

}  // namespace
}  // namespace gyre::internal
