#include "base/status.h"

#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::IsOk;
using support::MatchesStatus;

absl::StatusOr<int> Positive(int value) {
  if (value <= 0) return absl::InvalidArgumentError("not positive");
  return value;
}

absl::StatusOr<int> Sum(int a, int b) {
  ASSIGN_OR_RETURN(const int left, Positive(a));
  ASSIGN_OR_RETURN(const int right, Positive(b));
  RETURN_IF_ERROR(absl::OkStatus());
  return left + right;
}

TEST(Status, MacrosPropagate) {
  ASSERT_THAT(Sum(1, 2), IsOk());
  EXPECT_EQ(*Sum(1, 2), 3);
  EXPECT_THAT(Sum(1, 0), MatchesStatus(absl::StatusCode::kInvalidArgument, "not positive"));
}

TEST(Status, AnnotateKeepsTheCode) {
  EXPECT_THAT(Annotate(absl::AbortedError("why"), "where"), MatchesStatus(absl::StatusCode::kAborted, "where: why"));
  EXPECT_THAT(Annotate(absl::OkStatus(), "where"), IsOk());
}

TEST(Status, ErrnoHasCodeAndText) {
  EXPECT_THAT(ErrnoStatus("opening x", ENOENT), MatchesStatus(absl::StatusCode::kNotFound, "opening x"));
}

}  // namespace
}  // namespace gyre
