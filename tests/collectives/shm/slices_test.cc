#include "collectives/shm/slices.h"

#include "gtest/gtest.h"

namespace gyre::internal {
namespace {

TEST(Slices, CoverEverythingOnceOnGrainBorders) {
  for (int64_t count : {0, 1, 127, 128, 129, 1000, 100000, 262144}) {
    for (int parts : {1, 2, 3, 7, 64}) {
      int64_t expected = 0;
      for (int part = 0; part < parts; ++part) {
        const Range slice = SliceOf(count, parts, part, 128);
        ASSERT_GE(slice.count, 0);
        ASSERT_EQ(slice.begin, expected);
        if (slice.begin != count) {
          ASSERT_EQ(slice.begin % 128, 0);
        }
        expected += slice.count;
      }
      ASSERT_EQ(expected, count);
    }
  }
}

TEST(Slices, AreNearlyEqual) {
  for (int part = 0; part < 7; ++part) EXPECT_NEAR(SliceOf(1 << 20, 7, part, 128).count, (1 << 20) / 7, 129);
}

TEST(Slices, StayRightBeyond32Bits) {
  const int64_t count = (int64_t{1} << 40) + 1;
  EXPECT_EQ(SliceOf(count, 3, 2, 128).begin + SliceOf(count, 3, 2, 128).count, count);
}

TEST(Pieces, AreEmptyPastTheEnd) {
  EXPECT_EQ(PieceOf(10, 4, 2).begin, 8);
  EXPECT_EQ(PieceOf(10, 4, 2).count, 2);
  EXPECT_EQ(PieceOf(10, 4, 3).count, 0);
  EXPECT_EQ(PieceOf(10, 4, 100).count, 0);
  EXPECT_EQ(PieceOf(0, 4, 0).count, 0);
}

}  // namespace
}  // namespace gyre::internal
