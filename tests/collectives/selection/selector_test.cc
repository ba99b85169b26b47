#include "collectives/selection/selector.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <set>

#include "base/status.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using support::IsOk;

constexpr Collective kAll[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                               Collective::kBroadcast, Collective::kReduce,        Collective::kAllToAll};

// 10 Gbit/s and 20 us; 1 Gbit/s and 50 us; 100 Gbit/s and 5 us; 1 Gbit/s and 5 ms.
constexpr PathModel kModels[] = {{},
                                 {.latency = 50e-6, .bytes_per_second = 0.125e9},
                                 {.latency = 5e-6, .bytes_per_second = 12.5e9, .reduced_per_second = 20e9},
                                 {.latency = 5e-3, .bytes_per_second = 0.125e9}};

// By events, whatever the formulas say.
double Simulated(Collective operation, Algorithm algorithm, int64_t bytes, int hosts, const PathModel& model) {
  const int blocks = BlocksOf(algorithm, hosts);
  const PriceModel priced{.link = {std::chrono::nanoseconds(std::llround(model.latency * 1e9)), model.bytes_per_second},
                          .reduced_bytes_per_second = model.reduced_per_second};
  const auto price = PriceOfAlike([&](int rank) { return MakeSchedule(operation, algorithm, rank, hosts); }, hosts,
                                  (bytes + blocks - 1) / blocks, priced, 100'000);
  EXPECT_THAT(price, IsOk());
  return price.ok() ? price->seconds : std::numeric_limits<double>::quiet_NaN();
}

TEST(Selector, IsNeverMuchWorseThanTheBestInTheSimulator) {
  double worst = 1;
  for (const PathModel& model : kModels) {
    Selector selector(model);
    for (const Collective operation : kAll) {
      for (const int hosts : {2, 3, 4, 6, 8, 13, 32}) {
        for (int64_t bytes = 8; bytes <= 16 << 20; bytes *= 8) {
          double best = std::numeric_limits<double>::infinity();
          for (const Algorithm algorithm : AlgorithmsOf(operation)) {
            best = std::min(best, Simulated(operation, algorithm, bytes, hosts, model));
          }
          const Selection selection = selector.Select({operation, bytes, hosts});
          const double chosen = Simulated(operation, selection.algorithm, bytes, hosts, model);
          EXPECT_LE(chosen, 1.5 * best) << ToAbsl(NameOf(operation)) << " of " << bytes << " on " << hosts << ": "
                                        << ToAbsl(NameOf(selection.algorithm)) << " at " << model.latency * 1e6
                                        << " us";
          worst = std::max(worst, chosen / best);
        }
      }
    }
  }
  RecordProperty("worst", std::to_string(worst));
}

// Of what is forced, and of nothing else.
TEST(Selector, TakesWhatIsForced) {
  for (const Collective operation : kAll) {
    for (const Algorithm algorithm : AlgorithmsOf(operation)) {
      ForcedAlgorithms forced;
      forced.by_operation[static_cast<size_t>(operation)] = algorithm;
      Selector selector({}, forced);
      for (const int64_t bytes : {0, 8, 100'000, 1 << 30}) {
        EXPECT_EQ(selector.Select({operation, bytes, 6}).algorithm, algorithm);
        EXPECT_EQ(selector.Select({operation, bytes, 1}).algorithm, algorithm);
      }
    }
  }
}

TEST(Selector, LatencyAndBandwidthDecide) {
  Selector selector(PathModel{});
  EXPECT_EQ(selector.Select({Collective::kAllReduce, 8, 8}).algorithm, Algorithm::kRecursiveDoubling);
  EXPECT_EQ(selector.Select({Collective::kBroadcast, 8, 32}).algorithm, Algorithm::kBinomial);
  EXPECT_NE(selector.Select({Collective::kBroadcast, 64 << 20, 32}).algorithm, Algorithm::kBinomial);
  std::set<Algorithm> chosen;
  for (int64_t bytes = 8; bytes <= 256 << 20; bytes *= 2) {
    chosen.insert(selector.Select({Collective::kAllReduce, bytes, 13}).algorithm);
  }
  EXPECT_GE(chosen.size(), 2);
}

// More bytes take longer, more bandwidth less.
TEST(Selector, PredictionsGrowWithTheBytes) {
  Selector slow(PathModel{.bytes_per_second = 1e8}), fast(PathModel{});
  for (const Collective operation : kAll) {
    double before = 0;
    for (int64_t bytes = 64; bytes <= 64 << 20; bytes *= 4) {
      const double seconds = slow.Select({operation, bytes, 5}).seconds;
      EXPECT_GT(seconds, before);
      EXPECT_GT(seconds, fast.Select({operation, bytes, 5}).seconds);
      before = seconds;
    }
  }
}

// Chunks overlap memory and network where a host has several ranks; where it has one there is nothing to overlap.
TEST(Selector, ChunksWhereThereIsSomethingToOverlap) {
  Selector selector(PathModel{});
  const int64_t bytes = 256 << 20;
  const Selection alone = selector.Select({Collective::kAllReduce, bytes, 4, 1, 1});
  const Selection shared = selector.Select({Collective::kAllReduce, bytes, 4, 4, 4});
  EXPECT_GT(alone.chunk_bytes, shared.chunk_bytes);
  EXPECT_GE(shared.chunk_bytes, 1 << 20);
  EXPECT_LT(shared.chunk_bytes, bytes);
}

}  // namespace
}  // namespace gyre::internal
