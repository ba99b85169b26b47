#include "collectives/call.h"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using support::IsOk;
using support::MatchesStatus;

// Calls of rank 1 of 2, whose input and output are parts of one buffer.
class OverlapTest : public testing::Test {
 protected:
  TensorView Part(int first, int count) { return {floats_.data() + first, count, DType::kF32}; }

  static absl::Status Check(const Call& call) { return Validate(call, 1, 2); }

  static void ExpectRefusal(const Call& call, const std::string& text) {
    EXPECT_THAT(Check(call), MatchesStatus(absl::StatusCode::kInvalidArgument, text));
  }

  std::array<float, 16> floats_{};
  static constexpr std::array<int64_t, 2> kCounts = {3, 2};
};

TEST_F(OverlapTest, ReductionsAreInPlaceOrApart) {
  for (const CallKind kind : {CallKind::kAllReduce, CallKind::kReduce}) {
    const auto call = [&](const TensorView& in, const TensorView& out) {
      return Call{.kind = kind, .in = in, .out = out, .root = 1};
    };
    EXPECT_THAT(Check(call(Part(0, 4), Part(0, 4))), IsOk());
    EXPECT_THAT(Check(call(Part(0, 4), Part(4, 4))), IsOk());
    EXPECT_THAT(Check(call(Part(4, 4), Part(0, 4))), IsOk());
    EXPECT_THAT(Check(call(Part(1, 0), Part(0, 0))), IsOk());
    ExpectRefusal(call(Part(0, 4), Part(3, 4)),
                  "input and output overlap: the output begins 12 bytes after the input, which has 16; use separate "
                  "buffers, or one buffer for both");
    ExpectRefusal(call(Part(3, 4), Part(0, 4)), "the input begins 12 bytes after the output, which has 16");
  }
  // Elsewhere than on the root the output is not used.
  EXPECT_THAT(Check({.kind = CallKind::kReduce, .in = Part(0, 4), .out = Part(2, 4), .root = 0}), IsOk());
}

TEST_F(OverlapTest, ASegmentIsInPlaceWhereItIsThisRanks) {
  const auto scatter = [&](const TensorView& out) {
    return Call{.kind = CallKind::kReduceScatter, .in = Part(2, 5), .out = out, .counts = kCounts};
  };
  EXPECT_THAT(Check(scatter(Part(5, 2))), IsOk());
  EXPECT_THAT(Check(scatter(Part(7, 2))), IsOk());
  EXPECT_THAT(Check(scatter(Part(0, 2))), IsOk());
  for (const int first : {1, 2, 4, 6}) ExpectRefusal(scatter(Part(first, 2)), "this rank's segment of the input");
  const auto gather = [&](const TensorView& in) {
    return Call{.kind = CallKind::kAllGather, .in = in, .out = Part(2, 5), .counts = kCounts};
  };
  EXPECT_THAT(Check(gather(Part(5, 2))), IsOk());
  EXPECT_THAT(Check(gather(Part(7, 2))), IsOk());
  EXPECT_THAT(Check(gather(Part(0, 2))), IsOk());
  for (const int first : {1, 2, 4, 6}) ExpectRefusal(gather(Part(first, 2)), "this rank's segment of the output");
}

TEST_F(OverlapTest, AnAllToAllIsInPlaceWithEqualCounts) {
  constexpr std::array<int64_t, 2> kOther = {2, 3};
  const auto call = [&](const TensorView& out, std::span<const int64_t> receive_counts) {
    return Call{
        .kind = CallKind::kAllToAll, .in = Part(0, 5), .out = out, .counts = kCounts, .receive_counts = receive_counts};
  };
  EXPECT_THAT(Check(call(Part(0, 5), kCounts)), IsOk());
  EXPECT_THAT(Check(call(Part(5, 5), kOther)), IsOk());
  ExpectRefusal(call(Part(0, 5), kOther), "one buffer for both, with equal send and receive counts");
  ExpectRefusal(call(Part(4, 5), kCounts), "overlap");
}

}  // namespace
}  // namespace gyre::internal
