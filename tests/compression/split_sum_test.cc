#include "compression/split_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "compression/global_choice.h"
#include "compression/payload.h"
#include "compression/plain_slices.h"
#include "support/mutator.h"
#include "support/status_matchers.h"

namespace gyre::compression {
namespace {

using support::IsOk;
using support::MatchesStatus;
using support::Mutator;

TEST(SplitSum, EvenCutsCoverAll) {
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{1000}, int64_t{UINT32_MAX}}) {
    for (const int parts : {1, 3, 7, 64}) {
      const auto cuts = EvenCuts(count, parts);
      ASSERT_EQ(static_cast<int>(cuts.size()), parts + 1);
      EXPECT_EQ(cuts.front(), 0);
      EXPECT_EQ(cuts.back(), count);
      for (int part = 0; part < parts; ++part) EXPECT_LE(cuts[part + 1] - cuts[part], count / parts + 1);
      EXPECT_TRUE(std::ranges::is_sorted(cuts));
    }
  }
}

TEST(SplitSum, BalancedCutsHaveAsManyEntriesEach) {
  std::vector<uint32_t> positions;  // ever sparser
  for (uint32_t i = 0; i < 300; ++i) positions.push_back(i * i);
  for (const int parts : {1, 2, 7, 300}) {
    size_t before = 0;
    for (int part = 1; part <= parts; ++part) {
      const int64_t cut = part < parts ? BalancedCut(positions, 90'000, part, parts) : 90'000;
      const auto end = std::ranges::lower_bound(positions, cut, {}, [](uint32_t at) { return int64_t{at}; });
      const auto entries = static_cast<size_t>(end - positions.begin());
      EXPECT_LE(entries - before, 300u / static_cast<size_t>(parts) + 1) << part << " of " << parts;
      before = entries;
    }
    EXPECT_EQ(before, positions.size());
  }
  EXPECT_EQ(BalancedCut({}, 100, 1, 4), 25);
  EXPECT_EQ(BalancedCut(positions, 90'000, 0, 4), 0);
}

// What is encoded of a sum is read back; few elements by their positions, more by a bitmap, nearly all of them dense.
TEST(SplitSum, SumsAreSparseOrDenseWhicheverIsSmaller) {
  Mutator random(5);
  RegionSum region;
  RegionReader reader;
  std::vector<std::byte> payload;
  for (const ValueType type : {ValueType::kF32, ValueType::kF16, ValueType::kBF16}) {
    for (const int64_t count : {0, 1, 31, 4000}) {
      for (const uint64_t of_eight : {0, 1, 4, 8}) {
        std::vector<uint32_t> positions;
        std::vector<float> values;
        for (uint32_t i = 0; i < count; ++i) {
          if (random.Below(8) >= of_eight) continue;
          positions.push_back(i);
          values.push_back(static_cast<float>(random.Below(999)) - 500.5f);
        }
        auto given = values;
        EncodeSparse(positions, given, count, {}, payload);
        region.Begin(count);
        ASSERT_THAT(region.Add(payload, 0.5f), IsOk());
        ASSERT_THAT(region.Add(payload, 1), IsOk());
        region.Encode({.values = type}, payload);
        const bool dense = Load<uint8_t>(payload.data()) != static_cast<uint8_t>(PayloadKind::kSparse);
        EXPECT_EQ(dense, count == 1 || (count > 1 && of_eight == 8)) << count << " " << of_eight;
        ASSERT_THAT(reader.Read(payload, count), IsOk());
        std::vector<float> sum(region.sum().begin(), region.sum().end());  // the rounding errors
        for (size_t i = 0; i < reader.positions().size(); ++i) sum[reader.positions()[i]] += reader.values()[i];
        for (size_t i = 0; i < positions.size(); ++i) {
          ASSERT_EQ(sum[positions[i]], 1.5f * values[i]);
          sum[positions[i]] = 0;
        }
        EXPECT_EQ(std::ranges::count(sum, 0.0f), count);
      }
    }
  }
}

TEST(SplitSum, WhatIsNoSumIsRefused) {
  RegionSum region;
  RegionReader reader;
  std::vector<std::byte> payload;
  region.Begin(100);
  region.Encode({}, payload);
  EXPECT_THAT(reader.Read(payload, 99), MatchesStatus(absl::StatusCode::kDataLoss, "of a region of 99"));
  EXPECT_THAT(reader.Read({}, 100), MatchesStatus(absl::StatusCode::kDataLoss, "region"));
  Mutator random(9);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes(random.Below(80));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
    if (bytes.size() >= kPayloadHeaderBytes) {
      StoreHeader(bytes.data(), {static_cast<PayloadKind>(random.Below(kPayloadKindCount)), 0, 100});
    }
    if (!reader.Read(bytes, 100).ok()) continue;
    ASSERT_EQ(reader.positions().size(), reader.values().size());
    for (const uint32_t position : reader.positions()) ASSERT_LT(position, 100u);
  }
}

// Bytes change hands once, and keep their order.
TEST(SplitSum, EvenedBytesAreAllOfThem) {
  for (const auto& bytes : {std::vector<int64_t>{7}, {0, 0, 0}, {100, 0, 3, 1}, {1, 2, 90, 4, 0}}) {
    std::vector<int64_t> giver, holder;  // by byte
    for (size_t rank = 0; rank < bytes.size(); ++rank) {
      giver.insert(giver.end(), static_cast<size_t>(bytes[rank]), static_cast<int64_t>(rank));
    }
    for (size_t to = 0; to < bytes.size(); ++to) {
      const Evened own = EvenOut(bytes, static_cast<int>(to));
      EXPECT_EQ(std::accumulate(own.given.begin(), own.given.end(), int64_t{0}), bytes[to]);
      EXPECT_LE(std::ranges::max(own.held) - std::ranges::min(own.held), 1);
      EXPECT_EQ(std::accumulate(own.taken.begin(), own.taken.end(), int64_t{0}), own.held[to]);
      for (size_t from = 0; from < bytes.size(); ++from) {
        EXPECT_EQ(own.taken[from], EvenOut(bytes, static_cast<int>(from)).given[to]);
        holder.insert(holder.end(), static_cast<size_t>(own.taken[from]), static_cast<int64_t>(from));
      }
    }
    EXPECT_EQ(holder, giver);
  }
}

// What are zeros to blocks, and to who looks at each element, is the same, wherever a range begins and ends.
TEST(SplitSum, RangesAreTakenElementByElement) {
  constexpr size_t kCount = 100;
  const float kinds[] = {0, 0, 0, -1, 2, NAN, INFINITY, 1e-40f};
  Mutator random(13);
  RegionSum region;
  for (const uint64_t of_eight : {1, 8}) {
    std::vector<float> elements(kCount);
    for (float& element : elements) element = random.Below(8) < of_eight ? kinds[random.Below(8)] : 0;
    std::vector<std::byte> payload(kPayloadHeaderBytes + kCount * sizeof(float));
    StoreHeader(payload.data(), {PayloadKind::kF32, 0, kCount});
    std::memcpy(payload.data() + kPayloadHeaderBytes, elements.data(), kCount * sizeof(float));
    for (size_t begin = 0; begin <= kCount; ++begin) {
      for (size_t end = begin; end <= kCount; ++end) {
        std::vector<float> magnitudes, expected, left = elements;
        for (size_t i = begin; i < end; ++i) {
          if (std::abs(elements[i]) > 0) expected.push_back(std::abs(elements[i]));
          if (std::abs(elements[i]) <= 1) left[i] = 0;
        }
        region.Begin(kCount);
        ASSERT_THAT(region.Add(payload, 1), IsOk());
        region.AppendMagnitudes(static_cast<int64_t>(begin), static_cast<int64_t>(end), magnitudes);
        ASSERT_EQ(magnitudes, expected) << begin << " to " << end;
        region.Drop(static_cast<int64_t>(begin), static_cast<int64_t>(end), 1);
        ASSERT_EQ(std::memcmp(region.sum().data(), left.data(), kCount * sizeof(float)), 0) << begin << " to " << end;
      }
    }
  }
}

// As TailPoints, by sorting all.
std::vector<float> SortedTailPoints(std::vector<float> sums, int64_t wanted, int owners) {
  std::ranges::sort(sums, std::greater<>());
  const double first = std::max(1.0, static_cast<double>(wanted) / (4.0 * owners));
  std::vector<float> points;
  for (int i = 0; i < kTailPoints; ++i) {
    const double part = static_cast<double>(i) / (kTailPoints - 1);
    const double rank = first * std::pow(std::max(1.0, static_cast<double>(wanted) / first), part);
    const int64_t place = i + 1 < kTailPoints ? std::min<int64_t>(wanted, std::llround(rank)) : wanted;
    points.push_back(place <= std::ssize(sums) ? sums[static_cast<size_t>(place - 1)] : 0);
  }
  return points;
}

// However the sums are spread over their owners, about as many as are wanted are above the threshold.
TEST(GlobalChoice, ThresholdsLeaveAboutAsManyAsAreWanted) {
  Mutator random(11);
  for (const int owners : {1, 2, 5, 48}) {
    for (const int64_t wanted : {1, 10, 300, 5000}) {
      for (const bool skewed : {false, true}) {
        std::vector<float> points, all;
        for (int owner = 0; owner < owners; ++owner) {
          std::vector<float> sums(skewed ? (owner == 0 ? 9000 : random.Below(20))
                                         : 9000 / static_cast<uint64_t>(owners));
          for (float& sum : sums) sum = std::pow(static_cast<float>(random.Below(99'999) + 1), -0.3f);
          all.insert(all.end(), sums.begin(), sums.end());
          const auto expected = SortedTailPoints(sums, wanted, owners);
          const auto own = TailPoints(sums, wanted, owners);
          EXPECT_EQ(own, expected) << wanted << " " << owners;
          points.insert(points.end(), own.begin(), own.end());
        }
        const float threshold = GlobalThreshold(points, wanted);
        const auto above = std::ranges::count_if(all, [&](float sum) { return sum > threshold; });
        const double slack = 0.25 * static_cast<double>(wanted) + (wanted < 50 ? owners : 1);
        EXPECT_NEAR(static_cast<double>(above), static_cast<double>(wanted), slack) << owners << " " << skewed;
      }
    }
  }
}

TEST(GlobalChoice, TakesAllWhereThereAreFew) {
  std::vector<float> sums = {3, 1, 2};
  EXPECT_EQ(GlobalThreshold(TailPoints(sums, 9, 2), 9), 0);
  EXPECT_EQ(GlobalThreshold(TailPoints(sums, 3, 1), 3), std::nextafter(1.0f, 0.0f));
  EXPECT_EQ(GlobalThreshold(TailPoints(sums, 1, 1), 1), std::nextafter(3.0f, 0.0f));
  EXPECT_EQ(GlobalThreshold({}, 5), 0);
  const std::vector<float> damaged(2 * kTailPoints, std::nanf(""));
  EXPECT_EQ(GlobalThreshold(damaged, 5), 0);
}

// Each element arrives once, whatever the number of ranks and elements, and what is rounded off is kept.
TEST(PlainSlices, SumsAndKeepsRoundingErrors) {
  for (const PayloadKind kind : {PayloadKind::kF32, PayloadKind::kF16, PayloadKind::kBF16}) {
    for (const int ranks : {1, 2, 3, 5}) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{4}, size_t{333}}) {
        std::vector<PlainSlices> slices;
        std::vector<double> expected(count);
        constexpr float kScale = 0.25f;
        for (int rank = 0; rank < ranks; ++rank) {
          std::vector<float> elements, kept;
          for (size_t i = 0; i < count; ++i) {
            elements.push_back(1 + static_cast<float>(i * 7919 % 1000) / 999 + static_cast<float>(rank));
            if (kind != PayloadKind::kF32) kept.push_back(0.001f * static_cast<float>(i % 7));
            expected[i] += kScale * (double{elements.back()} + (kept.empty() ? 0 : double{kept.back()}));
          }
          slices.emplace_back(rank, ranks, kScale).Begin(kind, elements, kept);
        }
        for (int to = 0; to < ranks; ++to) {
          for (PlainSlices& from : slices) {
            std::vector<std::byte> bytes(static_cast<size_t>(from.bytes(to)));
            from.Encode(to, bytes.data());
            slices[static_cast<size_t>(to)].Add(bytes.data());
          }
        }
        for (int from = 0; from < ranks; ++from) {
          PlainSlices& owner = slices[static_cast<size_t>(from)];
          std::vector<std::byte> bytes(static_cast<size_t>(owner.bytes(from)));
          owner.EncodeSum(bytes.data());
          for (PlainSlices& to : slices) to.Decode(from, bytes.data());
        }
        for (size_t i = 0; i < count; ++i) {
          double sum = slices[0].elements()[i];
          for (const PlainSlices& each : slices) {
            ASSERT_EQ(each.elements()[i], slices[0].elements()[i]);
            if (kind != PayloadKind::kF32) sum += kScale * each.kept()[i];
          }
          ASSERT_NEAR(sum, expected[i], 1e-5) << ranks << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gyre::compression
