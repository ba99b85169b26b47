// Sizes, counts and bandwidth factors as nccl-tests has them.
#include "task.h"

#include <array>

#include "gtest/gtest.h"
#include "timing.h"

namespace gyre::bench {

namespace {

TEST(TaskTest, CountsBySize) {
  const auto task = [](Operation operation, int64_t bytes) {
    return Task{.operation = operation, .ranks = 3, .count = CountFor(operation, bytes, DType::kF32, 3)};
  };
  EXPECT_EQ(task(Operation::kAllReduce, 1024).count, 256);
  EXPECT_EQ(task(Operation::kAllReduce, 1024).bytes(), 1024);
  for (const Operation operation : {Operation::kAllGather, Operation::kReduceScatter, Operation::kAllToAll}) {
    EXPECT_EQ(task(operation, 1024).count, 85) << OperationName(operation);
    EXPECT_EQ(task(operation, 1024).bytes(), 1020) << OperationName(operation);
    EXPECT_EQ(task(operation, 4).count, 1) << OperationName(operation);
  }
  EXPECT_EQ(task(Operation::kAllGather, 1024).send_count(), 85);
  EXPECT_EQ(task(Operation::kReduceScatter, 1024).receive_count(), 85);
}

TEST(TaskTest, BusFactors) {
  EXPECT_DOUBLE_EQ(BusFactor(Operation::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(BusFactor(Operation::kReduceScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(Operation::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(Operation::kAllToAll, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(Operation::kBroadcast, 4), 1);
}

TEST(TaskTest, InPlaceAPartIsTheRanksSegmentOfTheWhole) {
  std::array<std::byte, 100> in{}, out{};
  const auto ends = [&](Operation operation) {
    const Task task{.operation = operation, .rank = 2, .ranks = 3, .count = 5};
    return EndsOf(task, in.data(), out.data(), true);
  };
  EXPECT_EQ(ends(Operation::kAllReduce).send, ends(Operation::kAllReduce).result);
  EXPECT_EQ(ends(Operation::kReduceScatter).send, in.data());
  EXPECT_EQ(ends(Operation::kReduceScatter).result, in.data() + 40);
  EXPECT_EQ(ends(Operation::kAllGather).send, out.data() + 40);
  EXPECT_EQ(ends(Operation::kAllGather).result, out.data());
}

TEST(TimingTest, Quantiles) {
  std::vector<double> samples;
  for (int i = 100; i >= 0; --i) samples.push_back(i);
  const Times times = Summarize(samples);
  EXPECT_EQ(times.min, 0);
  EXPECT_EQ(times.median, 50);
  EXPECT_EQ(times.p99, 99);
  EXPECT_EQ(times.mean, 50);
}

}  // namespace

}  // namespace gyre::bench
