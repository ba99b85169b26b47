// Proves every algorithm for every number of ranks up to 256, and for a sample up to 1024. Sanitizers, under which this
// takes ten times as long and more, see every number up to 24 and fewer beyond; the tests say so.
#include <bit>
#include <random>

#include "collectives/schedule/algorithms.h"
#include "collectives/schedule/prover.h"
#include "gtest/gtest.h"

namespace gyre::internal {
namespace {

constexpr uint64_t kSampleSeed = 20261121;
constexpr int kThinFrom = 24;

// From 1 to `most`; those behind a power of two, where most algorithms change their ways, in any case.
std::vector<int> SizesUpTo(int most) {
  std::vector<int> sizes;
  for (int size = 1; size <= most; ++size) {
    const auto above = static_cast<unsigned>(size - 1);
    const bool matters = size <= kThinFrom || std::has_single_bit(above);
    if (THOROUGH || matters) sizes.push_back(size);
  }
  if (!THOROUGH) GTEST_LOG_(INFO) << "thinned, for a sanitizer: " << sizes.size() << " of " << most << " sizes";
  return sizes;
}

class Proof : public testing::TestWithParam<Algorithm> {
 protected:
  static void Prove(int size, int root, const Conditions& conditions) {
    const std::vector<Schedule> programs = ProgramsOf(GetParam(), size, root);
    const auto outcome = RunSymbolically(programs, conditions);
    const absl::Status proof = outcome.ok() ? GetParam().claim(*outcome, root) : outcome.status();
    ASSERT_TRUE(proof.ok()) << GetParam().name << ", " << size << " ranks, root " << root << ", seed "
                            << conditions.seed << ", grain " << conditions.grain << ", lower rank first "
                            << conditions.lower_rank_first << ", units " << testing::PrintToString(conditions.units)
                            << ": " << proof;
  }

  static Conditions WholeBlocks(uint64_t seed) { return {.seed = seed, .meeting = GetParam().meeting}; }

  // Blocks of 1 to 4 units; alltoall's, which go by more than one number, are all alike.
  static Conditions ManyUnits(int size, std::mt19937_64& random) {
    Conditions conditions = WholeBlocks(random());
    conditions.grain = 1 + static_cast<int>(random() % 3);
    const int blocks = GetParam().make(0, size, 0).blocks, alike = 1 + static_cast<int>(random() % 4);
    const bool differ = GetParam().meeting == Meeting::kSameBlock;
    for (int block = 0; block < blocks; ++block) {
      conditions.units.push_back(differ ? 1 + static_cast<int>(random() % 4) : alike);
    }
    return conditions;
  }

  // All of them where they are few; else the ends, a neighbour of one, and one at random.
  static std::vector<int> Roots(int size, std::mt19937_64& random) {
    if (!GetParam().rooted) return {0};
    std::vector<int> roots;
    if (size > 16) return {0, 1, size - 1, static_cast<int>(random() % static_cast<uint64_t>(size))};
    for (int root = 0; root < size; ++root) roots.push_back(root);
    return roots;
  }
};

TEST_P(Proof, EverySizeUpTo256) {
  std::mt19937_64 random(kSampleSeed);
  for (const int size : SizesUpTo(256)) {
    for (const int root : Roots(size, random)) {
      // The three orders in turn; small worlds in all of them.
      const auto first = static_cast<uint64_t>(size);
      for (uint64_t seed = first; seed < first + (size <= 32 ? 3 : 1); ++seed) {
        ASSERT_NO_FATAL_FAILURE(Prove(size, root, WholeBlocks(seed)));
      }
    }
  }
}

// A transport that holds less than a block, and an executor that waits for more of one before it sends.
TEST_P(Proof, BlocksOfManyUnits) {
  std::mt19937_64 random(kSampleSeed);
  for (const int size : SizesUpTo(40)) {
    for (const int root : Roots(size, random)) {
      for (int round = 0; round < 2; ++round) ASSERT_NO_FATAL_FAILURE(Prove(size, root, ManyUnits(size, random)));
    }
  }
}

TEST_P(Proof, SampleUpTo1024) {
  std::mt19937_64 random(kSampleSeed);
  // Under a sanitizer, what grows with the square of the ranks ends here; the rest goes on.
  std::vector<int> sizes = {THOROUGH ? 257 : 150};
  if (!GetParam().quadratic || THOROUGH) sizes.push_back(1024);
  if (!GetParam().quadratic && THOROUGH) sizes.insert(sizes.end(), {511, 512, 513, 1000, 1023});
  const int more = !THOROUGH ? 0 : GetParam().quadratic ? 1 : 40;
  for (int i = 0; i < more; ++i) sizes.push_back(static_cast<int>(257 + random() % 768));
  if (!THOROUGH) GTEST_LOG_(INFO) << "thinned, for a sanitizer: " << testing::PrintToString(sizes);
  for (const int size : sizes) {
    for (const int root : Roots(size, random)) ASSERT_NO_FATAL_FAILURE(Prove(size, root, WholeBlocks(random())));
  }
}

// Where each reduction puts the lower rank's operand first, no algorithm needs it to be commutative.
TEST_P(Proof, LowerRankFirstNeedsNoCommutativity) {
  for (const int size : SizesUpTo(128)) {
    Conditions conditions = WholeBlocks(static_cast<uint64_t>(size));
    conditions.lower_rank_first = true;
    ASSERT_NO_FATAL_FAILURE(Prove(size, 0, conditions));
  }
}

TEST_P(Proof, OneRankAloneDoesNothing) {
  EXPECT_TRUE(GetParam().make(0, 1, 0).steps.empty());
}

INSTANTIATE_TEST_SUITE_P(Schedules, Proof, testing::ValuesIn(AllAlgorithms()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gyre::internal
