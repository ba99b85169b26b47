// Proves every algorithm for every number of ranks up to 128, and for a sample up to 1024.
#include <random>

#include "collectives/schedule/algorithms.h"
#include "collectives/schedule/prover.h"
#include "gtest/gtest.h"

namespace gyre::internal {
namespace {

constexpr uint64_t kSampleSeed = 20261121;

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

  static Conditions WholeBlocks(uint64_t seed) { return {.seed = seed, .all_to_all = GetParam().all_to_all}; }

  // Blocks of 1 to 4 units; alltoall's, which go by two numbers, are all alike.
  static Conditions ManyUnits(int size, std::mt19937_64& random) {
    Conditions conditions = WholeBlocks(random());
    conditions.grain = 1 + static_cast<int>(random() % 3);
    const int blocks = GetParam().make(0, size, 0).blocks, alike = 1 + static_cast<int>(random() % 4);
    for (int block = 0; block < blocks; ++block) {
      conditions.units.push_back(GetParam().all_to_all ? alike : 1 + static_cast<int>(random() % 4));
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

TEST_P(Proof, EverySizeUpTo128) {
  std::mt19937_64 random(kSampleSeed);
  for (int size = 1; size <= 128; ++size) {
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
  for (int size = 1; size <= 40; ++size) {
    for (const int root : Roots(size, random)) {
      for (int round = 0; round < 2; ++round) ASSERT_NO_FATAL_FAILURE(Prove(size, root, ManyUnits(size, random)));
    }
  }
}

TEST_P(Proof, SampleUpTo1024) {
  std::mt19937_64 random(kSampleSeed);
  std::vector<int> sizes = {static_cast<int>(129 + random() % 128)};
  if (!GetParam().quadratic || THOROUGH) sizes.insert(sizes.end(), {255, 256, 257, 1024});
  if (!GetParam().quadratic) sizes.insert(sizes.end(), {511, 512, 513, 1000, 1023});
  const int more = !THOROUGH ? 0 : GetParam().quadratic ? 1 : 40;
  for (int i = 0; i < more; ++i) sizes.push_back(static_cast<int>(129 + random() % 896));
  for (const int size : sizes) {
    for (const int root : Roots(size, random)) ASSERT_NO_FATAL_FAILURE(Prove(size, root, WholeBlocks(random())));
  }
}

// Where each reduction puts the lower rank's operand first, no algorithm needs it to be commutative.
TEST_P(Proof, LowerRankFirstNeedsNoCommutativity) {
  for (int size = 1; size <= (THOROUGH ? 128 : 32); ++size) {
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
