#include <gtest/gtest.h>

#include <string>

#include "gyre/compression.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::IsOk;
using support::MatchesStatus;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(CompressionOptions, EveryNameIsParsedIntoItself) {
  for (const std::string name :
       {"none", "fp16", "bf16", "fp8", "int8", "int4", "sign", "ternary", "topk", "randomk", "powersgd", "dgc"}) {
    const auto parsed = ParseCompression(name);
    ASSERT_THAT(parsed, IsOk());
    EXPECT_EQ(CompressionName(*parsed), name);
  }
}

TEST(CompressionOptions, NumbersAndVariants) {
  EXPECT_EQ(std::get<TopK>(ParseCompression("topk:0.75").value()).sparsity, 0.75);
  EXPECT_EQ(std::get<RandomK>(ParseCompression("randomk:0.5").value()).sparsity, 0.5);
  EXPECT_EQ(std::get<Dgc>(ParseCompression("dgc:0.99").value()).sparsity, 0.99);
  EXPECT_EQ(std::get<PowerSgd>(ParseCompression("powersgd:8").value()).rank, 8);
  EXPECT_EQ(std::get<Fp8>(ParseCompression("fp8-e5m2").value()).format, Fp8::Format::kE5M2);
  EXPECT_TRUE(std::get<TopK>(ParseCompression("topk-sampled:0.9").value()).sampled);
  EXPECT_TRUE(std::get<TopK>(ParseCompression("topk-global:0.9").value()).global);
  EXPECT_TRUE(std::get<Dgc>(ParseCompression("dgc-global").value()).global);
  EXPECT_FALSE(std::get<Dgc>(ParseCompression("dgc").value()).global);
}

TEST(CompressionOptions, SaysWhatIsWrong) {
  EXPECT_THAT(ParseCompression("zip"), MatchesStatus(kInvalid, "'zip' is no compression; there are none, fp16"));
  EXPECT_THAT(ParseCompression(""), MatchesStatus(kInvalid, "'' is no compression"));
  EXPECT_THAT(ParseCompression("int8:3"), MatchesStatus(kInvalid, "'int8' takes no number"));
  EXPECT_THAT(ParseCompression("dgc:"), MatchesStatus(kInvalid, "is no number"));
  EXPECT_THAT(ParseCompression("dgc:nan"), MatchesStatus(kInvalid, "is no number"));
  EXPECT_THAT(ParseCompression("dgc:1"), MatchesStatus(kInvalid, "dgc: sparsity is 1"));
  EXPECT_THAT(ParseCompression("powersgd:2.5"), MatchesStatus(kInvalid, "powersgd: rank"));
  EXPECT_THAT(Validate(Dgc{.momentum = 1}), MatchesStatus(kInvalid, "dgc: momentum is 1"));
  EXPECT_THAT(Validate(Dgc{.clip = -1}), MatchesStatus(kInvalid, "dgc: clip"));
  EXPECT_THAT(Validate(Dgc{.warmup = {1.5}}), MatchesStatus(kInvalid, "sparsity is 1.5"));
  EXPECT_THAT(Validate(Dgc{}), IsOk());
}

}  // namespace
}  // namespace gyre
