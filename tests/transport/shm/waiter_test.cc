#include "transport/shm/waiter.h"

#include <memory>
#include <thread>

#include "gtest/gtest.h"

namespace gyre::shm {
namespace {

using std::chrono::milliseconds;

TimePoint Never() {
  return TimePoint::max();
}

// One thread rings once for each number the other waits for: a lost wake-up costs the sleep's 50 ms.
TEST(Await, NoWakeUpIsLost) {
  auto bell = std::make_unique<Doorbell>();
  const WaitPolicy sleeper{.spin = std::chrono::nanoseconds(0), .yield = std::chrono::nanoseconds(0)};
  std::atomic<int> value{0}, seen{0};
  constexpr int kRounds = 2000;
  std::thread ringer([&] {
    for (int i = 1; i <= kRounds; ++i) {
      value.store(i, std::memory_order_seq_cst);
      bell->Ring();
      while (seen.load() < i) std::this_thread::yield();
    }
  });
  int slept_to_the_end = 0;
  for (int i = 1; i <= kRounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    Await(
        *bell, sleeper, [&] { return value.load(std::memory_order_seq_cst) >= i ? Progress::kDone : Progress::kNone; },
        [](TimePoint) { return false; }, Never);
    if (std::chrono::steady_clock::now() - start > milliseconds(45)) ++slept_to_the_end;
    seen.store(i);
  }
  ringer.join();
  EXPECT_LT(slept_to_the_end, kRounds / 100) << "wake-ups were lost";  // a busy machine may make a few rounds late
  EXPECT_EQ(bell->sleepers.load(), 0u);
}

TEST(Await, CheckEndsTheWait) {
  auto bell = std::make_unique<Doorbell>();
  for (const WaitPolicy& policy : {WaitPolicy::Spinning(), WaitPolicy::Crowded(), WaitPolicy::Background()}) {
    const auto deadline = std::chrono::steady_clock::now() + milliseconds(20);
    Await(
        *bell, policy, [] { return Progress::kNone; }, [&](TimePoint now) { return now >= deadline; }, Never);
    EXPECT_GE(std::chrono::steady_clock::now(), deadline);
    EXPECT_EQ(bell->sleepers.load(), 0u);
  }
}

TEST(Await, ProgressStartsTheBackingOffAnew) {
  auto bell = std::make_unique<Doorbell>();
  int polls = 0, checks = 0;
  Await(
      *bell, WaitPolicy::Spinning(), [&] { return ++polls < 1000 ? Progress::kSome : Progress::kDone; },
      [&](TimePoint) { return ++checks < 0; }, Never);
  EXPECT_EQ(polls, 1000);
  EXPECT_LT(checks, 500) << "checks more often than every millisecond";
}

TEST(Await, ReadsNoClockInShortOperations) {
  auto bell = std::make_unique<Doorbell>();
  int polls = 0;
  Await(
      *bell, WaitPolicy::Spinning(), [&] { return ++polls < 2 ? Progress::kSome : Progress::kDone; },
      [](TimePoint) { return ADD_FAILURE() << "checked", true; }, Never);
  EXPECT_EQ(polls, 2);
}

TEST(Await, CheckEndsWhatMakesProgressForEver) {
  auto bell = std::make_unique<Doorbell>();
  const auto deadline = std::chrono::steady_clock::now() + milliseconds(20);
  int checks = 0;
  Await(
      *bell, WaitPolicy::Spinning(), [] { return Progress::kSome; },
      [&](TimePoint now) { return ++checks, now >= deadline; }, Never);
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
  EXPECT_LE(checks, 21) << "checks more often than every millisecond";
}

TEST(Await, SleepsUntilTheDeadlineAtMost) {
  auto bell = std::make_unique<Doorbell>();
  const WaitPolicy sleeper{.spin = std::chrono::nanoseconds(0), .yield = std::chrono::nanoseconds(0)};
  auto fastest = std::chrono::steady_clock::duration::max();  // a busy machine may make some of them late
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto deadline = start + milliseconds(5);
    Await(
        *bell, sleeper, [] { return Progress::kNone; }, [&](TimePoint now) { return now >= deadline; },
        [&] { return deadline; });
    fastest = std::min(fastest, std::chrono::steady_clock::now() - start);
  }
  EXPECT_GE(fastest, milliseconds(5));
  EXPECT_LT(fastest, milliseconds(20));
}

}  // namespace
}  // namespace gyre::shm
