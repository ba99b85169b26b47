#include "transport/shm/meeting.h"

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "support/status_matchers.h"
#include "transport/shm/segment.h"
#include "transport/shm/waiter.h"

namespace gyre::shm {
namespace {

constexpr int64_t kCapacity = 1000;

// Members of one meeting whose slots lie in one segment.
class Place {
 public:
  explicit Place(int size) : size_(size), segment_(*Segment::Create("test", size * 2 * slot_bytes() + 64 * size)) {}
  static int64_t slot_bytes() { return Meeting::SlotBytes(kCapacity); }

  Doorbell& bell(int m) { return *reinterpret_cast<Doorbell*>(segment_.data() + size_ * 2 * slot_bytes() + 64 * m); }
  Meeting Join(int self) {
    std::vector<Meeting::Member> members;
    for (int m = 0; m < size_; ++m) members.push_back({segment_.data() + m * 2 * slot_bytes(), slot_bytes(), &bell(m)});
    return Meeting(std::move(members), self);
  }

 private:
  const int size_;
  Segment segment_;
};

TEST(Meeting, GathersWhenAllHavePosted) {
  Place place(3);
  Meeting a = place.Join(0), b = place.Join(1), c = place.Join(2);
  a.mine().signature.count = 10;
  a.Post();
  EXPECT_FALSE(a.Gathered());
  EXPECT_TRUE(a.HasPosted(0));
  EXPECT_FALSE(a.HasPosted(2));
  b.Post();
  c.Post();
  EXPECT_TRUE(a.Gathered());
  EXPECT_TRUE(b.Gathered());
  EXPECT_EQ(b.slot(0).signature.count, 10);
}

// What a member published must be there for the slowest reader, round after round, at any payload size.
TEST(Meeting, SlotsHoldUntilEverybodyHasReadThem) {
  constexpr int kSize = 3, kRounds = 3000;
  Place place(kSize);
  std::vector<std::thread> threads;
  for (int self = 0; self < kSize; ++self) {
    threads.emplace_back([&place, self] {
      Meeting meeting = place.Join(self);
      for (int round = 0; round < kRounds; ++round) {
        const int64_t bytes = round * 7 % kCapacity;
        std::memset(meeting.mine().payload(bytes), (round * 3 + self) & 0xff, static_cast<size_t>(bytes));
        meeting.Post();
        Await(
            place.bell(self), WaitPolicy::Crowded(),
            [&] { return meeting.Gathered() ? Progress::kDone : Progress::kNone; }, [](TimePoint) { return false; },
            [] { return TimePoint::max(); });
        for (int m = 0; m < kSize; ++m) {
          const std::byte* payload = meeting.slot(m).payload(bytes);
          for (int64_t i = 0; i < bytes; ++i) {
            ASSERT_EQ(payload[i], static_cast<std::byte>((round * 3 + m) & 0xff)) << "round " << round;
          }
        }
        meeting.Next();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gyre::shm
