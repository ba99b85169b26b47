// How calls over hosts are cut: into chunks that fit, and of which every element is in one.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/gpu/hosts_of_ranks.h"
#include "collectives/gpu_hierarchical/chunks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gyre {
namespace {

using internal::Call;
using internal::CallKind;
using internal::gpu_hierarchical::Chunk;
using internal::gpu_hierarchical::Chunks;
using internal::gpu_hierarchical::Copy;
using internal::gpu_hierarchical::Limits;
using testing::Each;

constexpr Limits kLimits[] = {{2048, 3}, {128, 1}, {4096, 2}, {1 << 20, 4}, {2048, 3, 4096}};

// Memory, and how often each byte of it was named.
class Ground {
 public:
  explicit Ground(int64_t bytes) : bytes_(static_cast<size_t>(bytes)), named_(bytes_.size()) {}

  std::byte* data() { return bytes_.data(); }
  const std::vector<int>& named() const { return named_; }

  bool Has(const void* at, int64_t bytes) const {
    const auto begin = static_cast<const std::byte*>(at) - bytes_.data();
    return begin >= 0 && bytes >= 0 && begin + bytes <= static_cast<int64_t>(bytes_.size());
  }

  // Whether it lies here.
  bool Name(const void* at, int64_t bytes) {
    if (!Has(at, bytes)) return false;
    const auto begin = static_cast<const std::byte*>(at) - bytes_.data();
    for (int64_t i = 0; i < bytes; ++i) ++named_[static_cast<size_t>(begin + i)];
    return true;
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<int> named_;
};

class HierarchicalChunks : public testing::Test {
 protected:
  // visit(rank, chunk, slot, area) of all chunks of all ranks of a host; `of_rank` is their calls.
  template <typename CallOf, typename Visit>
  void ForAll(int host, const Limits& limits, const CallOf& of_rank, const Visit& visit) {
    for (int rank = 0; rank < ranks_->size(); ++rank) {
      if (ranks_->host(rank) != host) continue;
      const Call call = of_rank(rank);
      const Chunks chunks(call, *ranks_->team(rank), limits);
      ASSERT_LE(chunks.depth(), limits.slots);
      ASSERT_LE(chunks.area_bytes() * chunks.depth(), limits.areas_bytes + 2 * 256);
      for (int64_t index = 0; index < chunks.count(); ++index) {
        Ground slot(limits.slot_bytes), area(chunks.area_bytes());
        Chunk chunk;
        chunks.Make(index, slot.data(), area.data(), chunk);
        visit(rank, chunk, slot, area);
      }
    }
  }

  std::unique_ptr<HostsOfRanks> ranks_;
};

TEST_F(HierarchicalChunks, SharesOfAnAllReduceCoverIt) {
  for (const std::vector<int>& sizes : {std::vector{2, 2}, {2, 3}, {1, 3}, {4, 3, 5}}) {
    ranks_ = std::make_unique<HostsOfRanks>(sizes, 1);
    for (const DType dtype : {DType::kU8, DType::kF16, DType::kF64}) {
      for (const int64_t count : {1, 33, 1000, 1025, 20'001}) {
        for (const Limits& limits : kLimits) {
          for (int host = 0; host < static_cast<int>(sizes.size()); ++host) {
            const std::string what = absl::StrCat(count, " elements of ", DTypeSize(dtype), " bytes, slots of ",
                                                  limits.slot_bytes, " on host ", host);
            const bool alone = sizes[static_cast<size_t>(host)] == 1;
            const bool early = dtype == DType::kF16 && ranks_->size() == 4;  // all of the scale is
            Ground in(count * DTypeSize(dtype)), shares(count * DTypeSize(dtype));
            int64_t gathered = 0;
            const auto of_rank = [&](int) {
              return Call{.kind = CallKind::kAllReduce,
                          .in = {in.data(), count, dtype},
                          .out = {shares.data(), count, dtype},
                          .op = ReduceOp::kAverage};
            };
            int first = -1;  // of the host
            ForAll(host, limits, of_rank, [&](int rank, const Chunk& chunk, Ground& slot, Ground&) {
              if (first < 0) first = rank;
              ASSERT_TRUE(slot.Name(chunk.out.to, chunk.out.bytes)) << what;
              ASSERT_TRUE(shares.Name(chunk.back.to, chunk.back.bytes)) << what;
              EXPECT_EQ(chunk.back.from, chunk.out.to);
              EXPECT_EQ(chunk.rest.bytes(), early ? 0 : chunk.back.bytes);
              EXPECT_EQ(std::accumulate(chunk.counts.begin(), chunk.counts.end(), int64_t{0}) * DTypeSize(dtype),
                        alone ? chunk.out.bytes : chunk.inward.in.bytes());
              if (rank != first) return;
              if (chunk.inward.kind != CallKind::kBarrier) {
                ASSERT_TRUE(in.Name(chunk.inward.in.data, chunk.inward.in.bytes())) << what;
              }
              if (chunk.outward.kind != CallKind::kBarrier) {
                ASSERT_TRUE(shares.Has(chunk.outward.out.data, chunk.outward.out.bytes())) << what;
                gathered += chunk.outward.out.bytes();
              }
            });
            EXPECT_THAT(shares.named(), Each(1)) << what;
            EXPECT_THAT(in.named(), Each(alone && !early ? 0 : 1)) << what;
            EXPECT_EQ(gathered, alone ? 0 : count * DTypeSize(dtype)) << what;
          }
        }
      }
    }
  }
}

// Of different lengths; one is empty.
std::vector<int64_t> Segments(int size, int64_t least) {
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(r == 1 ? 0 : least + 7 * r);
  return counts;
}

TEST_F(HierarchicalChunks, SegmentsAreAllScatteredAndGathered) {
  ranks_ = std::make_unique<HostsOfRanks>(std::vector{2, 2, 2}, 1);
  for (const int64_t least : {0, 10, 1000}) {
    const auto counts = Segments(6, least);
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    for (const Limits& limits : kLimits) {
      for (const bool gathers : {false, true}) {
        for (int host = 0; host < 3; ++host) {
          for (int local = 0; local < 2; ++local) {
            const int self = 2 * host + local;
            const int64_t own = counts[static_cast<size_t>(self)];
            Ground all(total * 4), mine(own * 4);
            const auto of_rank = [&](int) {
              const TensorView whole(all.data(), total, DType::kF32), part(mine.data(), own, DType::kF32);
              return Call{.kind = gathers ? CallKind::kAllGather : CallKind::kReduceScatter,
                          .in = gathers ? part : whole,
                          .out = gathers ? whole : part,
                          .counts = counts};
            };
            ForAll(host, limits, of_rank, [&](int rank, const Chunk& chunk, Ground& slot, Ground& area) {
              if (rank != self) return;
              int64_t packed = 0;
              for (const Copy& copy : gathers ? chunk.unpack : chunk.pack) {
                ASSERT_TRUE(all.Name(gathers ? copy.to : copy.from, copy.bytes));
                ASSERT_TRUE(area.Name(gathers ? copy.from : copy.to, copy.bytes));
                packed += copy.bytes;
              }
              EXPECT_EQ(std::ranges::count(area.named(), 1), packed);  // none twice
              EXPECT_EQ(packed, gathers ? chunk.outward.out.bytes() : chunk.inward.in.bytes());
              ASSERT_TRUE(
                  slot.Name(gathers ? chunk.back.from : chunk.out.to, gathers ? chunk.back.bytes : chunk.out.bytes));
              ASSERT_TRUE(
                  slot.Name(gathers ? chunk.out.to : chunk.back.from, gathers ? chunk.out.bytes : chunk.back.bytes));
              ASSERT_TRUE(
                  mine.Name(gathers ? chunk.out.from : chunk.back.to, gathers ? chunk.out.bytes : chunk.back.bytes));
            });
            EXPECT_THAT(all.named(), Each(1));
            EXPECT_THAT(mine.named(), Each(1));
          }
        }
      }
    }
  }
}

// A call that is worth it has several chunks, so that something overlaps; a long one no more than it must.
TEST_F(HierarchicalChunks, AreAsLongAsSlotsAllow) {
  ranks_ = std::make_unique<HostsOfRanks>(std::vector{2, 2}, 1);
  const auto chunks_of = [this](int64_t bytes) {
    std::byte somewhere{};
    const TensorView view(&somewhere, bytes, DType::kU8);
    const Call call{.kind = CallKind::kAllReduce, .in = view, .out = view};
    return Chunks(call, *ranks_->team(0), {.slot_bytes = 4 << 20, .slots = 4}).count();
  };
  EXPECT_EQ(chunks_of(1 << 20), 1);  // shares of half a MiB: no shorter
  EXPECT_EQ(chunks_of(8 << 20), 4);
  EXPECT_EQ(chunks_of(32 << 20), 4);
  EXPECT_EQ(chunks_of(256 << 20), 32);
}

}  // namespace
}  // namespace gyre
