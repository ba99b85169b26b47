#include "transport/shm/arena.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

TEST(Arena, DefaultsFindRoomInAnAddressSpace) {
  constexpr int64_t kGiB = int64_t{1} << 30, kTiB = int64_t{1} << 40;
  EXPECT_EQ(DefaultArenaBytes(24 * kGiB, 1), 24 * kGiB);
  EXPECT_EQ(DefaultArenaBytes(24 * kGiB, 8), 24 * kGiB);
  EXPECT_EQ(DefaultArenaBytes(4 * kTiB, 8), 512 * kGiB);
  EXPECT_EQ(DefaultArenaBytes(4 * kTiB, 64), 8 * kGiB);
  EXPECT_EQ(DefaultArenaBytes(4 * kTiB, 1024), kGiB);
  EXPECT_EQ(DefaultArenaBytes(kGiB / 2, 1), kGiB);
}

TEST(Arena, HandsOutAlignedZeroedPieces) {
  auto arena = Arena::Create(1 << 20);
  ASSERT_THAT(arena, IsOk());
  for (int64_t bytes : {0, 1, 127, 128, 129, 5000}) {
    auto piece = (*arena)->Allocate(bytes);
    ASSERT_THAT(piece, IsOk());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*piece) % Arena::kAlignment, 0u);
    EXPECT_TRUE(std::all_of(*piece, *piece + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::memset(*piece, 0xff, static_cast<size_t>(bytes));
  }
}

TEST(Arena, ReusesAndMergesWhatIsFreed) {
  auto arena = Arena::Create(1 << 20);
  ASSERT_THAT(arena, IsOk());
  std::vector<std::byte*> pieces;
  for (int i = 0; i < 8; ++i) pieces.push_back(*(*arena)->Allocate((1 << 20) / 8));
  EXPECT_THAT((*arena)->Allocate(1), MatchesStatus(StatusCode::kResourceExhausted, "no free range"));
  for (int i : {1, 3, 2, 7, 0, 5, 4, 6}) (*arena)->Free(pieces[static_cast<size_t>(i)]);
  EXPECT_EQ((*arena)->allocated(), 0);
  EXPECT_THAT((*arena)->Allocate(1 << 20), IsOk());  // one range again
}

TEST(Arena, NeverReusesWhatWasRetired) {
  auto arena = Arena::Create(1 << 20);
  ASSERT_THAT(arena, IsOk());
  std::byte* const first = *(*arena)->Allocate(1000);
  std::byte* const second = *(*arena)->Allocate(1000);
  (*arena)->Retire(second + 500);
  (*arena)->Free(first);
  (*arena)->Free(second);
  for (int i = 0; i < 20; ++i) {
    std::byte* const piece = *(*arena)->Allocate(500);
    EXPECT_TRUE(piece + 500 <= second || piece >= second + 1000);
  }
}

TEST(Arena, RefusesTheImpossible) {
  auto arena = Arena::Create(1 << 20);
  ASSERT_THAT(arena, IsOk());
  EXPECT_THAT((*arena)->Allocate(-5), MatchesStatus(StatusCode::kInvalidArgument, "-5"));
  EXPECT_THAT((*arena)->Allocate(int64_t{1} << 62), MatchesStatus(StatusCode::kResourceExhausted, "arena"));
}

TEST(Arena, KnowsItsOwnMemory) {
  auto arena = Arena::Create(1 << 20);
  ASSERT_THAT(arena, IsOk());
  std::byte* const first = *(*arena)->Allocate(1000);
  std::byte* const second = *(*arena)->Allocate(1000);
  EXPECT_EQ((*arena)->OffsetOf(first, 1000), 0);
  EXPECT_EQ((*arena)->OffsetOf(second + 3, 997), 1024 + 3);
  EXPECT_FALSE((*arena)->OffsetOf((*arena)->segment().data() + (1 << 20) - 10, 11).has_value());
  std::vector<char> heap(100);
  EXPECT_FALSE((*arena)->OffsetOf(heap.data(), 100).has_value());
}

// Random allocations and frees: pieces never overlap, and all space comes back.
TEST(Arena, SurvivesARandomLife) {
  auto arena = Arena::Create(1 << 20);
  ASSERT_THAT(arena, IsOk());
  struct Piece {
    std::byte* at;
    int64_t bytes;
    std::byte mark;
  };
  std::vector<Piece> pieces;
  uint64_t state = 7;
  const auto draw = [&](uint64_t below) { return (state = state * 6364136223846793005u + 1) >> 33 & (below - 1); };
  for (int i = 0; i < 5000; ++i) {
    if (draw(2) == 0 || pieces.empty()) {
      const auto bytes = static_cast<int64_t>(draw(16384));
      auto at = (*arena)->Allocate(bytes);
      if (!at.ok()) continue;
      pieces.push_back({*at, bytes, static_cast<std::byte>(i)});
      std::memset(*at, i & 0xff, static_cast<size_t>(bytes));
    } else {
      const size_t which = draw(1024) % pieces.size();
      const Piece piece = pieces[which];
      ASSERT_TRUE(std::all_of(piece.at, piece.at + piece.bytes, [&](std::byte b) { return b == piece.mark; }));
      (*arena)->Free(piece.at);
      pieces.erase(pieces.begin() + static_cast<int64_t>(which));
    }
  }
  for (const Piece& piece : pieces) (*arena)->Free(piece.at);
  EXPECT_THAT((*arena)->Allocate(1 << 20), IsOk());
}

}  // namespace
}  // namespace gyre::internal
