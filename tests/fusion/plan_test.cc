#include "fusion/plan.h"

#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fusion/tensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"
#include "xxhash.h"

namespace gyre::fusion {
namespace {

using support::IsOk;
using support::MatchesStatus;
using testing::ElementsAre;

std::vector<int> InOrder(const std::vector<TensorInfo>& tensors) {
  std::vector<int> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<std::vector<int>> Members(const Plan& plan) {
  std::vector<std::vector<int>> members;
  for (const Bucket& bucket : plan.buckets) members.push_back(bucket.tensors);
  return members;
}

// Every tensor once, one dtype a bucket, layouts without overlap and aligned.
void ExpectSound(const Plan& plan, const std::vector<TensorInfo>& tensors) {
  std::set<int> seen;
  for (const Bucket& bucket : plan.buckets) {
    ASSERT_EQ(bucket.tensors.size(), bucket.offsets.size());
    ASSERT_FALSE(bucket.tensors.empty());
    int64_t free = 0;
    for (size_t i = 0; i < bucket.tensors.size(); ++i) {
      const TensorInfo& tensor = tensors[static_cast<size_t>(bucket.tensors[i])];
      EXPECT_TRUE(seen.insert(bucket.tensors[i]).second);
      EXPECT_EQ(tensor.dtype, bucket.dtype);
      EXPECT_GE(bucket.offsets[i], free);
      EXPECT_EQ(bucket.offsets[i] * DTypeSize(bucket.dtype) % kAlignment, 0);
      free = bucket.offsets[i] + tensor.count;
    }
    EXPECT_LE(free, bucket.count);
  }
  EXPECT_EQ(seen.size(), tensors.size());
}

TEST(PlanBySize, NothingMakesNoBuckets) {
  EXPECT_TRUE(PlanBySize({}, {}, 1000).buckets.empty());
}

TEST(PlanBySize, OneTensorOfAnySizeIsOneBucket) {
  for (const int64_t count : {0, 1, 33, 1'000'000}) {
    const auto tensors = Floats({count});
    const Plan plan = PlanBySize(tensors, InOrder(tensors), 4096);
    EXPECT_THAT(Members(plan), ElementsAre(ElementsAre(0)));
    ExpectSound(plan, tensors);
  }
}

TEST(PlanBySize, ClosesABucketBeforeItGrowsTooLarge) {
  const auto tensors = Floats({100, 100, 150, 300, 20, 1});  // 256 floats a bucket, 32 in the last
  const Plan plan = PlanBySize(tensors, InOrder(tensors), 1024);
  EXPECT_THAT(Members(plan), ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3), ElementsAre(4, 5)));
  ExpectSound(plan, tensors);
}

TEST(PlanBySize, GoesByTheOrderGiven) {
  const auto tensors = Floats({10, 200, 100, 100});
  const std::vector<int> order = {3, 2, 1, 0};
  EXPECT_THAT(Members(PlanBySize(tensors, order, 1024)),
              ElementsAre(ElementsAre(3, 2), ElementsAre(1), ElementsAre(0)));
}

TEST(PlanBySize, ALargeLastTensorGoesAlone) {
  const auto tensors = Floats({10, 10, 200});
  EXPECT_THAT(Members(PlanBySize(tensors, InOrder(tensors), 1024)), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
}

TEST(PlanBySize, DtypesDoNotMix) {
  std::vector<TensorInfo> tensors = Floats({64, 64, 64, 64, 64});
  tensors[1].dtype = tensors[3].dtype = DType::kF16;
  const Plan plan = PlanBySize(tensors, InOrder(tensors), 1 << 20);
  EXPECT_THAT(Members(plan), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4)));
  ExpectSound(plan, tensors);
}

TEST(PlanBySize, IsSoundForRandomSets) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<TensorInfo> tensors = Floats(std::vector<int64_t>(random() % 50));
    for (TensorInfo& tensor : tensors) {
      tensor.count = static_cast<int64_t>(random() % 1000);
      tensor.dtype = random() % 4 == 0 ? DType::kBF16 : DType::kF32;
    }
    std::vector<int> order = InOrder(tensors);
    std::shuffle(order.begin(), order.end(), random);
    const Plan plan = PlanBySize(tensors, order, static_cast<int64_t>(1 + random() % 5000));
    ExpectSound(plan, tensors);
    EXPECT_EQ(FromText(ToText({tensors, plan})).value(), (SavedPlan{tensors, plan}));
  }
}

TEST(Hash, TellsPlansApart) {
  const auto tensors = Floats({10, 20, 30});
  std::set<uint64_t> hashes;
  for (const int64_t bytes : {1, 120, 1 << 20}) hashes.insert(Hash(PlanBySize(tensors, InOrder(tensors), bytes)));
  EXPECT_EQ(hashes.size(), 3u);
  EXPECT_EQ(Hash(PlanBySize(tensors, InOrder(tensors), 1)), Hash(PlanBySize(tensors, InOrder(tensors), 1)));
}

SavedPlan Sample() {
  std::vector<TensorInfo> tensors = Floats({10, 0, 30});
  tensors[0].name = "a name with spaces\nlines \\ and \xff\x01";
  tensors[1].name = "";
  return {tensors, PlanBySize(tensors, InOrder(tensors), 100)};
}

// Two tensors, of which the first travels in slices around the second.
SavedPlan Sliced() {
  const auto tensors = Floats({1000, 10});
  SavedPlan saved{tensors, PlanBySize(tensors, InOrder(tensors), 1)};
  saved.plan.turns = {{0, 0, 320}, {1, 0, 32}, {0, 320, 704}};
  return saved;
}

TEST(Turns, GoFromTheBeginningToTheEnd) {
  EXPECT_TRUE(HasRightTurns(Sliced().plan));
  const std::vector<std::vector<Turn>> wrong = {{{0, 0, 320}, {1, 0, 32}},                 // not to the end
                                                {{0, 0, 320}, {1, 0, 32}, {0, 320, 736}},  // beyond it
                                                {{0, 0, 320}, {1, 0, 32}, {0, 288, 736}},  // twice
                                                {{0, 0, 319}, {1, 0, 32}, {0, 319, 705}},  // not aligned
                                                {{0, 0, 1024}},                            // one bucket is missing
                                                {{1, 0, 32}, {0, 0, 1024}},              // not numbered by first turns
                                                {{0, 0, 1024}, {1, 0, 32}, {1, 32, 0}},  // nothing
                                                {{0, 0, 1024}, {1, 0, 32}, {0, 0, 1024}},  // again
                                                {{0, 0, 1024}, {1, 0, 32}, {2, 0, 1}},     // no such bucket
                                                {{-1, 0, 1024}, {1, 0, 32}},               // nor this one
                                                {{0, 0, int64_t{1} << 62}, {1, 0, 32}},    // beyond it by far
                                                {{0, 0, 320}, {0, 320, INT64_MAX - 100}, {1, 0, 32}}};  // likewise
  for (size_t i = 0; i < wrong.size(); ++i) {
    SavedPlan saved = Sliced();
    saved.plan.turns = wrong[i];
    EXPECT_FALSE(HasRightTurns(saved.plan)) << i;
    EXPECT_EQ(FromText(ToText(saved)).status().code(), absl::StatusCode::kDataLoss) << i;
  }
  Plan several = Sliced().plan;
  several.turns = {{0, 0, 32}, {0, 32, 992}, {1, 0, 32}};
  EXPECT_TRUE(HasRightTurns(several));
  several.buckets = {MakeBucket(Sliced().tensors, {0, 1})};
  several.turns = {{0, 0, 32}, {0, 32, 1024}};
  EXPECT_FALSE(HasRightTurns(several)) << "a bucket of two tensors in slices";
  several.turns = {{0, 0, 1056}};
  EXPECT_TRUE(HasRightTurns(several));
}

TEST(PlanText, KeepsTurns) {
  EXPECT_EQ(FromText(ToText(Sliced())).value(), Sliced());
  Plan whole = Sliced().plan;
  whole.turns.clear();
  EXPECT_NE(Hash(Sliced().plan), Hash(whole));
}

TEST(PlanText, KeepsNamesOfAnyBytes) {
  EXPECT_EQ(FromText(ToText(Sample())).value(), Sample());
}

TEST(PlanText, RefusesWhatIsCutShort) {
  const std::string text = ToText(Sample());
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_EQ(FromText(text.substr(0, length)).status().code(), absl::StatusCode::kDataLoss) << length;
  }
}

TEST(PlanText, RefusesEveryAlteredByte) {
  const std::string text = ToText(Sample());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string altered = text;
    altered[i] = static_cast<char>(altered[i] ^ 1);
    EXPECT_EQ(FromText(altered).status().code(), absl::StatusCode::kDataLoss) << i;
  }
}

// With a right checksum: what a liar could write.
TEST(PlanText, RefusesPlansThatAreNoPlans) {
  const auto seal = [](const std::string& body) {
    return absl::StrCat(body, "end ", absl::Hex(XXH3_64bits(body.data(), body.size()), absl::kZeroPad16), "\n");
  };
  const std::string two = "gyre-plan 1 2 1\ntensor f32 5 a\ntensor f32 6 b\n";
  ASSERT_THAT(FromText(seal(two + "bucket 1 0\n")), IsOk());
  for (const std::string& body : {
           two,                                                                     // no bucket
           two + "bucket 0\n",                                                      // a tensor in none
           two + "bucket 0 0\n",                                                    // or twice
           two + "bucket 0 2\n",                                                    // or that is not there
           two + "bucket 0 -1\n",                                                   //
           two + "bucket\n",                                                        // empty
           two + "bucket 0 1\nbucket 0\n",                                          // more than it says
           std::string("gyre-plan 2 0 0\n"),                                        // another version
           std::string("gyre-plan 1 0 1\nbucket 0\n"),                              // more buckets than tensors
           std::string("gyre-plan 1 99999999999 0\n"),                              // too many
           std::string("gyre-plan 1 1 1\ntensor f32 9999999999999 a\nbucket 0\n"),  // too large
           std::string("gyre-plan 1 1 1\ntensor f99 1 a\nbucket 0\n"),              // no dtype
           std::string("gyre-plan 1 1 1\ntensor f32 1 a\\q\nbucket 0\n"),           // no escape
           std::string("gyre-plan 1 1 1\ntensor f32\nbucket 0\n"),                  // no name
           std::string("gyre-plan 1 2 1\ntensor f32 1 a\ntensor f16 1 b\nbucket 0 1\n"),
           std::string(""),
       }) {
    EXPECT_THAT(FromText(seal(body)), MatchesStatus(absl::StatusCode::kDataLoss, "not a saved plan")) << body;
  }
  std::mt19937_64 random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::string body = two + "bucket 1 0\n";
    for (int change = 0; change < 3; ++change) body[random() % body.size()] = static_cast<char>(random());
    (void)FromText(seal(body)).ok();  // must only come back
  }
}

}  // namespace
}  // namespace gyre::fusion
