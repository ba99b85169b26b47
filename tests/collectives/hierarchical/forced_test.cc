// Every algorithm carries its operation out, on any number of hosts; and a fixed choice gives the same bits each time.
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/hierarchical/sim_world.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using internal::Algorithm;
using internal::AlgorithmsOf;
using internal::Call;
using internal::CallKind;
using internal::Collective;
using internal::ForcedAlgorithms;
using support::IsOk;

using Buffers = std::vector<std::vector<float>>;

ForcedAlgorithms Forcing(Collective operation, Algorithm algorithm) {
  ForcedAlgorithms forced;
  forced.by_operation[static_cast<size_t>(operation)] = algorithm;
  return forced;
}

void RunAll(SimWorld& world, const std::function<Call(int rank)>& call) {
  std::vector<std::shared_ptr<internal::HierarchicalOperation>> operations;
  for (int r = 0; r < world.size(); ++r) operations.push_back(world.Make(r, call(r)));
  ASSERT_TRUE(world.Run(operations, std::chrono::seconds(1000)));
  for (const auto& operation : operations) ASSERT_THAT(operation->status(), IsOk());
}

// Small whole numbers, whose sums are exact.
float Value(int rank, int64_t index) {
  return static_cast<float>((rank + 3) * 7 + index % 101);
}
float Sum(int hosts, int64_t index) {
  float sum = 0;
  for (int rank = 0; rank < hosts; ++rank) sum += Value(rank, index);
  return sum;
}

class Forced : public testing::TestWithParam<std::pair<Collective, Algorithm>> {
 protected:
  static Buffers Inputs(int hosts, int64_t count) {
    Buffers inputs;
    for (int rank = 0; rank < hosts; ++rank) {
      auto& own = inputs.emplace_back(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) own[static_cast<size_t>(i)] = Value(rank, i);
    }
    return inputs;
  }
};

void CheckReducing(Collective operation, SimWorld& world, int64_t count, Buffers data) {
  const int hosts = world.size(), root = hosts / 2;
  const CallKind kind = operation == Collective::kAllReduce ? CallKind::kAllReduce : CallKind::kReduce;
  RunAll(world, [&](int r) {
    auto& own = data[static_cast<size_t>(r)];
    return Call{.kind = kind, .in = own, .out = own, .root = root};
  });
  for (int r = 0; r < hosts; ++r) {
    if (kind == CallKind::kReduce && r != root) continue;
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(data[static_cast<size_t>(r)][static_cast<size_t>(i)], Sum(hosts, i));
  }
}

void CheckBroadcast(SimWorld& world, int64_t count, Buffers data) {
  const int root = world.size() / 2;
  RunAll(world, [&](int r) {
    auto& own = data[static_cast<size_t>(r)];
    return Call{.kind = CallKind::kBroadcast, .in = own, .out = own, .root = root};
  });
  for (const auto& own : data) {
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(own[static_cast<size_t>(i)], Value(root, i));
  }
}

// Segments of count, count + 1, ... elements.
void CheckSegments(Collective operation, SimWorld& world, int64_t count) {
  const int hosts = world.size();
  std::vector<int64_t> counts;
  for (int r = 0; r < hosts; ++r) counts.push_back(count + r);
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  Buffers whole(static_cast<size_t>(hosts), std::vector<float>(static_cast<size_t>(total))), segment;
  const internal::RankCounts begins = internal::Displacements(counts);
  const bool gathers = operation == Collective::kAllGather;
  for (int r = 0; r < hosts; ++r) {
    const auto index = static_cast<size_t>(r);
    segment.emplace_back(static_cast<size_t>(counts[index]));
    for (int64_t i = 0; i < total; ++i) whole[index][static_cast<size_t>(i)] = Value(r, i);
    for (size_t i = 0; i < segment[index].size(); ++i) {
      segment[index][i] = Value(r, begins[index] + static_cast<int64_t>(i));
    }
  }
  RunAll(world, [&](int r) {
    const auto index = static_cast<size_t>(r);
    if (gathers) return Call{.kind = CallKind::kAllGather, .in = segment[index], .out = whole[index], .counts = counts};
    return Call{.kind = CallKind::kReduceScatter, .in = whole[index], .out = segment[index], .counts = counts};
  });
  for (int r = 0; r < hosts; ++r) {
    for (int owner = 0; owner < hosts; ++owner) {
      const auto at = static_cast<size_t>(owner);
      if (!gathers && owner != r) continue;
      for (int64_t i = 0; i < counts[at]; ++i) {
        const auto place = static_cast<size_t>(gathers ? begins[at] + i : i);
        const float got = gathers ? whole[static_cast<size_t>(r)][place] : segment[at][place];
        ASSERT_EQ(got, gathers ? Value(owner, begins[at] + i) : Sum(hosts, begins[at] + i));
      }
    }
  }
}

// Piece of rank `from` for rank `to`.
void CheckAllToAll(SimWorld& world, int64_t piece) {
  const int hosts = world.size();
  const std::vector<int64_t> counts(static_cast<size_t>(hosts), piece);
  const auto value = [&](int from, int to, int64_t i) { return Value(from * hosts + to, i); };
  Buffers data;
  for (int r = 0; r < hosts; ++r) {
    auto& own = data.emplace_back();
    for (int to = 0; to < hosts; ++to) {
      for (int64_t i = 0; i < piece; ++i) own.push_back(value(r, to, i));
    }
  }
  RunAll(world, [&](int r) {
    auto& own = data[static_cast<size_t>(r)];
    return Call{
        .kind = CallKind::kAllToAll, .in = own, .out = own, .counts = counts, .receive_counts = counts, .even = true};
  });
  for (int r = 0; r < hosts; ++r) {
    for (int from = 0; from < hosts; ++from) {
      for (int64_t i = 0; i < piece; ++i) {
        ASSERT_EQ(data[static_cast<size_t>(r)][static_cast<size_t>(from * piece + i)], value(from, r, i));
      }
    }
  }
}

TEST_P(Forced, IsRight) {
  const auto [operation, algorithm] = GetParam();
  for (const int hosts : {2, 3, 4, 5, 7, 8, 13}) {
    for (const int64_t count : {0, 1, 5, 1000, 40'001}) {
      SCOPED_TRACE(absl::StrCat(hosts, " hosts, ", count, " elements"));
      SimWorld world({.ranks = hosts}, false, Forcing(operation, algorithm));
      switch (operation) {
        case Collective::kAllReduce:
        case Collective::kReduce: CheckReducing(operation, world, count, Inputs(hosts, count)); break;
        case Collective::kBroadcast: CheckBroadcast(world, count, Inputs(hosts, count)); break;
        case Collective::kReduceScatter:
        case Collective::kAllGather: CheckSegments(operation, world, count); break;
        case Collective::kAllToAll: CheckAllToAll(world, count / 10); break;
      }
      if (HasFatalFailure()) return;
    }
  }
}

// Ranks that relay other ranks' pieces must know their sizes: one that has others is found out.
TEST(ForcedRelay, RanksThatDisagreeLearnIt) {
  SimWorld world({.ranks = 4}, false, Forcing(Collective::kAllToAll, Algorithm::kBruck));
  std::vector<std::shared_ptr<internal::HierarchicalOperation>> operations;
  std::vector<std::vector<float>> data;
  for (int r = 0; r < 4; ++r) data.emplace_back(r == 2 ? 8 : 4);
  std::vector<std::vector<int64_t>> counts;
  for (int r = 0; r < 4; ++r) counts.emplace_back(4, r == 2 ? 2 : 1);
  for (int r = 0; r < 4; ++r) {
    const auto index = static_cast<size_t>(r);
    operations.push_back(world.Make(r, {.kind = CallKind::kAllToAll,
                                        .in = data[index],
                                        .out = data[index],
                                        .counts = counts[index],
                                        .receive_counts = counts[index],
                                        .even = true}));
  }
  ASSERT_TRUE(world.Run(operations, std::chrono::seconds(100)));
  for (const auto& operation : operations) {
    EXPECT_THAT(operation->status(),
                support::MatchesStatus(absl::StatusCode::kInvalidArgument, "counts by rank differ"));
  }
}

// Sums that depend on their order.
std::vector<float> RoundedSums(int hosts, const ForcedAlgorithms& forced, const sim::LinkModel& link) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> any(-1, 1);
  Buffers data(static_cast<size_t>(hosts), std::vector<float>(20'000));
  for (auto& own : data) {
    for (float& value : own) value = any(random);
  }
  SimWorld world({.ranks = hosts, .link = link}, false, forced);
  RunAll(world, [&](int r) {
    auto& own = data[static_cast<size_t>(r)];
    return Call{.kind = CallKind::kAllReduce, .in = own, .out = own};
  });
  for (const auto& own : data) EXPECT_EQ(std::memcmp(own.data(), data[0].data(), own.size() * sizeof(float)), 0);
  return data[0];
}

// Whatever the network is taken for.
TEST(ForcedBits, AreTheSameInEveryRun) {
  const sim::LinkModel near{std::chrono::microseconds(5), 1e9}, far{std::chrono::milliseconds(5), 1e8};
  std::vector<std::vector<float>> by_algorithm;
  for (const Algorithm algorithm : AlgorithmsOf(Collective::kAllReduce)) {
    const ForcedAlgorithms forced = Forcing(Collective::kAllReduce, algorithm);
    by_algorithm.push_back(RoundedSums(7, forced, near));
    EXPECT_EQ(by_algorithm.back(), RoundedSums(7, forced, far)) << ToAbsl(NameOf(algorithm));
  }
  EXPECT_NE(by_algorithm[0], by_algorithm[1]);  // forcing makes a difference
}

std::vector<std::pair<Collective, Algorithm>> All() {
  std::vector<std::pair<Collective, Algorithm>> all;
  for (int number = 0; number < internal::kCollectiveCount; ++number) {
    const auto operation = static_cast<Collective>(number);
    for (const Algorithm algorithm : AlgorithmsOf(operation)) all.emplace_back(operation, algorithm);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Every, Forced, testing::ValuesIn(All()), [](const auto& param) {
  return absl::StrCat(ToAbsl(NameOf(param.param.first)), "_", ToAbsl(NameOf(param.param.second)));
});

}  // namespace
}  // namespace gyre
