// What makes two trees better than one, of their shape.
#include "collectives/schedule/double_tree.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace gyre::internal {
namespace {

constexpr int kTrees = 2;

// The ranks that a rank sends a tree's block to.
std::vector<int> Children(const Schedule& schedule, int tree) {
  std::vector<int> children;
  for (const Step& step : schedule.steps) {
    if (step.block == tree && step.kind == Step::Kind::kSend) children.push_back(step.peer);
  }
  return children;
}

TEST(DoubleTree, ARankPassesOnInOneTreeAtMost) {
  for (int size = 2; size <= 300; ++size) {
    const int root = size / 3;
    for (int rank = 0; rank < size; ++rank) {
      const Schedule schedule = DoubleTreeBroadcast(rank, size, root);
      const size_t first = Children(schedule, 0).size(), second = Children(schedule, 1).size();
      if (rank == root) {
        EXPECT_TRUE(first == 1 && second == 1) << size;
      } else {
        EXPECT_TRUE(first == 0 || second == 0) << size << ", rank " << rank;
        EXPECT_LE(first + second, 2) << size << ", rank " << rank;
      }
    }
  }
}

// So that neither half waits for the other. Between two ranks there is but one link.
TEST(DoubleTree, NoStreamCarriesBothHalves) {
  for (int size = 3; size <= 300; ++size) {
    const int root = size - 1;
    std::set<std::pair<int, int>> links;
    for (int rank = 0; rank < size; ++rank) {
      for (int tree = 0; tree < kTrees; ++tree) {
        for (const int child : Children(DoubleTreeBroadcast(rank, size, root), tree)) {
          EXPECT_TRUE(links.emplace(rank, child).second) << size << ": " << rank << " to " << child;
        }
      }
    }
    EXPECT_EQ(links.size(), static_cast<size_t>(kTrees * (size - 1)));
  }
}

// Over all ranks, for an allreduce: one that reduces anything reduces one half only.
TEST(DoubleTree, ARankReducesOneHalfAtMost) {
  for (int size = 2; size <= 300; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      std::array<int, kTrees> reduces = {};
      for (const Step& step : DoubleTreeAllReduce(rank, size).steps) {
        if (step.kind == Step::Kind::kReceiveReduce) ++reduces[static_cast<size_t>(step.block)];
      }
      EXPECT_TRUE(reduces[0] == 0 || reduces[1] == 0) << size << ", rank " << rank;
    }
  }
}

// What goes up is never held up by what comes down: on each stream it goes first.
TEST(DoubleTree, WhatGoesUpGoesFirst) {
  for (int size = 2; size <= 100; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<Step> steps = DoubleTreeAllReduce(rank, size).steps;
      const auto goes_up = [](const Step& step) { return step.kind == Step::Kind::kReceiveReduce; };
      const auto is_down = [](const Step& step) { return step.kind == Step::Kind::kReceive; };
      const auto down = std::ranges::find_if(steps, is_down);
      EXPECT_TRUE(std::find_if(down, steps.end(), goes_up) == steps.end()) << size << ", rank " << rank;
    }
  }
}

}  // namespace
}  // namespace gyre::internal
