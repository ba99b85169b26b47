#include "ps/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/mutator.h"
#include "support/status_matchers.h"

namespace gyre::ps {
namespace {

using support::MatchesStatus;
using support::Mutator;

std::vector<Tensor> RandomTensors(Mutator& random) {
  std::vector<Tensor> tensors(random.Below(30));
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].name = std::to_string(i);
    tensors[i].count = static_cast<int64_t>(random.OneIn(5) ? random.Below(100'000) : random.Below(3));
  }
  return tensors;
}

TEST(LayoutTest, EveryElementOnceOnServersWithRoom) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Mutator random(seed);
    const std::vector<Tensor> tensors = RandomTensors(random);
    const int servers = 1 + static_cast<int>(random.Below(9));
    const auto bytes = static_cast<int64_t>(4 + random.Below(20'000));
    const auto layout = Layout::Create(tensors, servers, bytes);
    ASSERT_TRUE(layout.ok());
    int64_t offset = 0, largest = 0;
    std::vector<int64_t> left;
    for (const Tensor& tensor : tensors) left.push_back(tensor.count);
    for (size_t i = 0; i < layout->partitions().size(); ++i) {
      const Partition& partition = layout->partitions()[i];
      EXPECT_EQ(partition.offset, offset);
      EXPECT_GT(partition.count, 0);
      EXPECT_LE(partition.count * 4, bytes);
      EXPECT_EQ(layout->OfServer(partition.server)[static_cast<size_t>(partition.slot)], static_cast<int>(i));
      left[static_cast<size_t>(partition.tensor)] -= partition.count;
      offset += partition.count;
      largest = std::max(largest, partition.count);
    }
    EXPECT_EQ(offset, layout->elements());
    EXPECT_TRUE(std::ranges::all_of(left, [](int64_t count) { return count == 0; }));
    for (int server = 0; server < servers; ++server) {
      EXPECT_LE(layout->BytesOf(server), ((offset + servers - 1) / servers + largest) * 4);
    }
  }
}

TEST(LayoutTest, ANewServerTakesLittleMoreThanItsShare) {
  const Tensor tensor{"weights", 1'000'000};
  const auto four = Layout::Create(std::span(&tensor, 1), 4, 4000),
             five = Layout::Create(std::span(&tensor, 1), 5, 4000);
  ASSERT_TRUE(four.ok() && five.ok());
  ASSERT_EQ(four->partitions().size(), 1000u);
  int moved = 0;
  for (size_t i = 0; i < 1000; ++i) moved += four->partitions()[i].server != five->partitions()[i].server ? 1 : 0;
  EXPECT_GE(moved, 150);
  EXPECT_LE(moved, 400);  // a fifth would be least; modulo would move 800
}

TEST(LayoutTest, PartitionsAreAsSmallAsAnEvenShareNeeds) {
  EXPECT_EQ(DefaultPartitionBytes(0, 1), 256 << 10);
  EXPECT_EQ(DefaultPartitionBytes(1'000'000, 256), 256 << 10);
  EXPECT_EQ(DefaultPartitionBytes(25'500'000, 4), 448 << 10);
  EXPECT_EQ(DefaultPartitionBytes(INT64_MAX / 4, 1), kPartitionBytes);
  for (const int servers : {1, 2, 3, 4, 7}) {
    const Tensor tensor{"weights", 25'500'001};
    const Layout layout = *Layout::Create(std::span(&tensor, 1), servers);
    for (int server = 0; server < servers; ++server) {
      EXPECT_LE(static_cast<double>(layout.BytesOf(server) * servers), 1.04 * 4 * 25'500'001) << servers;
    }
  }
}

TEST(LayoutTest, FingerprintsDifferWhereLayoutsDo) {
  const std::vector<Tensor> tensors = {{"a", 10}, {"b", 20}}, turned = {{"b", 20}, {"a", 10}},
                            other = {{"a", 20}, {"b", 10}};
  const uint64_t print = Layout::Create(tensors, 2)->fingerprint();
  EXPECT_EQ(Layout::Create(tensors, 2)->fingerprint(), print);
  EXPECT_NE(Layout::Create(tensors, 3)->fingerprint(), print);
  EXPECT_NE(Layout::Create(tensors, 2, 16)->fingerprint(), print);
  EXPECT_NE(Layout::Create(turned, 2)->fingerprint(), print);
  EXPECT_NE(Layout::Create(other, 2)->fingerprint(), print);
}

TEST(LayoutTest, WhatIsNoLayout) {
  const auto create = [](std::vector<Tensor> tensors, int servers, int64_t bytes) {
    return Layout::Create(tensors, servers, bytes);
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(create({}, 0, 4), MatchesStatus(kInvalid, "0 servers"));
  EXPECT_THAT(create({}, 1, 3), MatchesStatus(kInvalid, "3 bytes"));
  EXPECT_THAT(create({{"a", 1}, {"a", 1}}, 1, 4), MatchesStatus(kInvalid, "'a'"));
  EXPECT_THAT(create({{"", 1}}, 1, 4), MatchesStatus(kInvalid, "''"));
  EXPECT_THAT(create({{"a", -1}}, 1, 4), MatchesStatus(kInvalid, "-1 elements"));
  EXPECT_THAT(create({{"a", INT64_MAX}}, 1, 4), MatchesStatus(kInvalid, "elements"));
  EXPECT_THAT(create({{"a", INT64_MAX / 8}, {"b", INT64_MAX / 8}}, 1, 1 << 20), MatchesStatus(kInvalid, ""));
  EXPECT_TRUE(create({}, 3, 4)->partitions().empty());
}

}  // namespace
}  // namespace gyre::ps
