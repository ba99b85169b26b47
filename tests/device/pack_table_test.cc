#include "device/pack_table.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::device {
namespace {

using support::MatchesStatus;

TEST(PackTable, TilesHaveEachElementOnce) {
  float memory = 0;
  std::vector<Segment> segments;
  int64_t first = 0;
  for (const int64_t count : {1, 0, 64, 1000, 4096, 100000, 3}) {
    segments.push_back({.data = &memory, .count = count, .first = first, .dtype = DType::kF32});
    first += count + 5;  // a gap
  }
  const auto table = MakePackTable(segments, DType::kBF16, 4096);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->buffer_count, first - 5);
  std::vector<int> times(static_cast<size_t>(first), 0);
  int32_t last = 0;
  for (const Tile& tile : table->tiles) {
    ASSERT_GE(tile.segment, last);
    last = tile.segment;
    ASSERT_GT(tile.count, 0);
    ASSERT_LE(tile.count * DTypeSize(DType::kBF16), 4096);
    EXPECT_EQ(tile.first % 8, 0);  // 16 bytes of the buffer
    for (int64_t i = 0; i < tile.count; ++i) {
      ++times[static_cast<size_t>(segments[static_cast<size_t>(tile.segment)].first + tile.first + i)];
    }
  }
  for (const Segment& segment : segments) {
    for (int64_t i = 0; i < segment.count + 5 && segment.first + i < first; ++i) {
      ASSERT_EQ(times[static_cast<size_t>(segment.first + i)], i < segment.count ? 1 : 0);
    }
  }
}

TEST(PackTable, TilesAreOfEqualBytes) {
  float memory = 0;
  const Segment large{.data = &memory, .count = 1 << 20, .first = 0, .dtype = DType::kF32};
  const auto table = MakePackTable(std::vector{large}, DType::kF32, 64 << 10);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->tiles.size(), 64u);
  for (const Tile& tile : table->tiles) EXPECT_EQ(tile.count, 16 << 10);
}

TEST(PackTable, WrongSegmentsAreNamed) {
  float memory = 0;
  const Segment good{.data = &memory, .count = 10, .first = 0, .dtype = DType::kF32};
  const auto second = [&](Segment segment, DType buffer = DType::kF32) {
    return MakePackTable(std::vector{good, segment}, buffer).status();
  };
  EXPECT_THAT(second({.data = &memory, .count = -1, .first = 10}),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "segment 1 (-1 of f32 at element 10)"));
  EXPECT_THAT(second({.data = nullptr, .count = 1, .first = 10}),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "no memory"));
  EXPECT_THAT(second({.data = &memory, .count = 1, .first = 9}),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "overlaps"));
  EXPECT_THAT(second({.data = &memory, .count = 1, .first = INT64_MAX}),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "too large"));
  EXPECT_THAT(second({.data = &memory, .count = 1, .first = 10, .dtype = DType::kF64}),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "cannot be converted to the buffer's f32"));
}

}  // namespace
}  // namespace gyre::device
