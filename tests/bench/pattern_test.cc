// The checker of gyre-bench: right results pass, and every planted wrong element is counted.
#include "pattern.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace gyre::bench {

namespace {

constexpr Operation kOperations[] = {Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather,
                                     Operation::kBroadcast, Operation::kAllToAll,      Operation::kCopy};

template <typename T>
std::vector<T> Filled(const Task& task) {
  std::vector<T> input(static_cast<size_t>(task.send_count()));
  Pattern(task).Fill(reinterpret_cast<std::byte*>(input.data()));
  return input;
}

template <typename T>
int64_t Wrong(const Task& task, const std::vector<T>& result) {
  EXPECT_EQ(std::ssize(result), task.receive_count());
  return Pattern(task).CountWrong(reinterpret_cast<const std::byte*>(result.data()));
}

template <typename T>
T Combined(ReduceOp op, const std::vector<T>& values) {
  const T sum = std::accumulate(values.begin(), values.end(), T{0});
  switch (op) {
    case ReduceOp::kSum: return sum;
    case ReduceOp::kAverage: return sum / static_cast<T>(values.size());
    case ReduceOp::kMin: return *std::ranges::min_element(values);
    case ReduceOp::kMax: return *std::ranges::max_element(values);
    case ReduceOp::kProduct:
    case ReduceOp::kAdasum: break;
  }
  return std::accumulate(values.begin(), values.end(), T{1}, std::multiplies<>());
}

// Every rank's result, computed element by element from what the ranks put in.
template <typename T>
std::vector<std::vector<T>> Results(Task task) {
  std::vector<std::vector<T>> inputs, results;
  for (task.rank = 0; task.rank < task.ranks; ++task.rank) inputs.push_back(Filled<T>(task));
  for (int rank = 0; rank < task.ranks; ++rank) {
    std::vector<T> result;
    for (int64_t i = 0; i < task.receive_count(); ++i) {
      const int64_t segment = i / task.count, within = i % task.count, mine = rank * task.count + within;
      const auto reduced = [&](int64_t at) {
        std::vector<T> values;
        for (const auto& input : inputs) values.push_back(input[static_cast<size_t>(at)]);
        return Combined<T>(task.op, values);
      };
      const auto taken = [&](int64_t from, int64_t at) {
        return inputs[static_cast<size_t>(from)][static_cast<size_t>(at)];
      };
      switch (task.operation) {
        case Operation::kAllReduce: result.push_back(reduced(i)); break;
        case Operation::kReduceScatter: result.push_back(reduced(mine)); break;
        case Operation::kAllGather: result.push_back(taken(segment, within)); break;
        case Operation::kBroadcast: result.push_back(taken(task.root, i)); break;
        case Operation::kAllToAll: result.push_back(taken(segment, mine)); break;
        case Operation::kCopy: result.push_back(taken(rank, i)); break;
      }
    }
    results.push_back(result);
  }
  return results;
}

template <typename T>
void ExpectRightOnesPassAndPlantedOnesCount(Task task) {
  const auto results = Results<T>(task);
  for (task.rank = 0; task.rank < task.ranks; ++task.rank) {
    SCOPED_TRACE(testing::Message() << OperationName(task.operation) << " " << ReduceOpName(task.op) << " rank "
                                    << task.rank << " of " << task.ranks);
    std::vector<T> result = results[static_cast<size_t>(task.rank)];
    EXPECT_EQ(Wrong(task, result), 0);
    for (const int64_t at : {int64_t{0}, task.receive_count() / 2, task.receive_count() - 1}) {
      result[static_cast<size_t>(at)] += 1;
    }
    EXPECT_EQ(Wrong(task, result), 3);
  }
}

Task TaskOf(Operation operation, DType dtype, ReduceOp op, int ranks) {
  return {.operation = operation, .dtype = dtype, .op = op, .root = ranks - 1, .ranks = ranks, .count = 301};
}

TEST(PatternTest, RightResultsPassAndPlantedErrorsAreCounted) {
  for (const Operation operation : kOperations) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      for (const int ranks : {1, 2, 3, 5}) {
        const auto reduction = static_cast<ReduceOp>(op);
        ExpectRightOnesPassAndPlantedOnesCount<int32_t>(TaskOf(operation, DType::kI32, reduction, ranks));
        ExpectRightOnesPassAndPlantedOnesCount<float>(TaskOf(operation, DType::kF32, reduction, ranks));
      }
    }
  }
}

TEST(PatternTest, RanksPutInDifferentElements) {
  for (const Operation operation : kOperations) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      Task task = TaskOf(operation, DType::kI32, static_cast<ReduceOp>(op), 3);
      task.rank = 1;
      const auto one = Filled<int32_t>(task);
      task.rank = 2;
      EXPECT_NE(one, Filled<int32_t>(task)) << OperationName(operation) << " " << op;
    }
  }
}

// The commonest faults of a collective: nothing was written, or what is another's.
TEST(PatternTest, AnotherRanksResultIsWrong) {
  for (const Operation operation : {Operation::kReduceScatter, Operation::kAllToAll, Operation::kCopy}) {
    Task task = TaskOf(operation, DType::kF32, ReduceOp::kProduct, 3);
    task.count = 64;
    const auto results = Results<float>(task);
    EXPECT_GT(Wrong(task, results[1]), 0) << OperationName(operation);
  }
}

TEST(PatternTest, OwnInputIsNoResult) {
  for (const Operation operation : {Operation::kAllReduce, Operation::kBroadcast, Operation::kAllToAll}) {
    Task task = TaskOf(operation, DType::kF32, ReduceOp::kSum, 3);
    EXPECT_GT(Wrong(task, Filled<float>(task)), task.count / 2) << OperationName(operation);
  }
}

TEST(PatternTest, EveryDType) {
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    Task task = TaskOf(Operation::kCopy, static_cast<DType>(dtype), ReduceOp::kSum, 2);
    std::vector<uint8_t> bytes(static_cast<size_t>(task.send_bytes()));
    Pattern(task).Fill(reinterpret_cast<std::byte*>(bytes.data()));
    const auto wrong = [&] { return Pattern(task).CountWrong(reinterpret_cast<const std::byte*>(bytes.data())); };
    EXPECT_EQ(wrong(), 0) << DTypeName(task.dtype);
    bytes[static_cast<size_t>(100 * DTypeSize(task.dtype))] ^= 1;
    EXPECT_EQ(wrong(), 1) << DTypeName(task.dtype);
  }
}

// Half types in an average are rounded on the way; a hundredth is allowed, a wrong value is not.
TEST(PatternTest, RoundedAverages) {
  Task task = TaskOf(Operation::kAllReduce, DType::kF32, ReduceOp::kAverage, 2);
  std::vector<float> result = Results<float>(task)[0];
  const auto largest = std::ranges::max_element(result);
  *largest *= 1.005F;
  EXPECT_EQ(Wrong(task, result), 0);
  *largest *= 1.02F;
  EXPECT_EQ(Wrong(task, result), 1);
}

}  // namespace

}  // namespace gyre::bench
