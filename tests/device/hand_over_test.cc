// Things that are discarded while others use them.
#include "device/hand_over.h"

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace gyre::device {
namespace {

TEST(HandOverTest, DiscardsAtOnceWhatNobodyUses) {
  int discarded = 0, used = 0;
  HandOver thing([&] { ++discarded; });
  EXPECT_TRUE(thing.Use([&] { ++used; }));
  EXPECT_EQ(discarded, 0);
  thing.Discard();
  EXPECT_EQ(discarded, 1);
  EXPECT_FALSE(thing.Use([&] { ++used; }));
  EXPECT_EQ(used, 1);
}

// Else this would not end.
TEST(HandOverTest, DoesNotWaitForAUse) {
  bool discarded = false;
  HandOver thing([&] { discarded = true; });
  std::promise<void> begun, may_end;
  std::thread user([&] {
    EXPECT_TRUE(thing.Use([&] {
      begun.set_value();
      may_end.get_future().wait();
      EXPECT_FALSE(discarded);
    }));
    EXPECT_TRUE(discarded);
  });
  begun.get_future().wait();
  thing.Discard();
  may_end.set_value();
  user.join();
}

// ... also from within it.
TEST(HandOverTest, IsDiscardedByWhoeverUsesIt) {
  int discarded = 0;
  HandOver thing([&] { ++discarded; });
  EXPECT_TRUE(thing.Use([&] {
    thing.Discard();
    EXPECT_EQ(discarded, 0);
  }));
  EXPECT_EQ(discarded, 1);
}

TEST(HandOverTest, IsNeverUsedOnceDiscardedNorForgotten) {
  for (int turn = 0; turn < 300; ++turn) {
    std::atomic<bool> discarded = false;
    std::atomic<int> users = 0;
    HandOver thing([&] {
      EXPECT_EQ(users.load(), 0);
      discarded.store(true);
    });
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          thing.Use([&] {
            EXPECT_EQ(users.fetch_add(1), 0);
            EXPECT_FALSE(discarded.load());
            users.fetch_sub(1);
          });
        }
      });
    }
    threads.emplace_back([&] { thing.Discard(); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(discarded.load());
  }
}

}  // namespace
}  // namespace gyre::device
