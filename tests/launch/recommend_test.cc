// gyrerun recommend on synthetic traces whose phases are known.
#include "launch/recommend.h"

#include <fstream>
#include <iterator>
#include <random>
#include <span>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::launch {

namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

constexpr double kMiB = 1 << 20;

// From `seconds` on, until the next one.
struct Stage {
  double seconds;
  double cpus;
  double memory;  // MiB, at its beginning
  double growth;  // MiB a second
};
const std::vector<Stage> kStages = {{0, 0.9, 50, 40}, {10, 1.9, 600, 0}, {40, 1.0, 600, 0}, {48, 0.15, 620, 0}};
constexpr double kEnd = 53;

// A look each `interval`, some of them late; a rank's share of what the stages say, with noise.
std::vector<UsageRow> Trace(int ranks, double interval, unsigned seed, double noise) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> jitter(0, 0.02 * interval);
  std::normal_distribution<double> error(0, noise);
  std::vector<UsageRow> rows;
  for (int rank = 0; rank < ranks; ++rank) {
    double before = 0;
    for (double at = interval; at <= kEnd; at += interval) {
      const double now = at + jitter(random);
      UsageRow row{.seconds = now, .interval = now - before, .rank = rank};
      for (size_t i = 0; i < kStages.size(); ++i) {
        const double end = i + 1 < kStages.size() ? kStages[i + 1].seconds : 1e9;
        const double inside = std::max(0.0, std::min(now, end) - std::max(before, kStages[i].seconds));
        row.cpus += kStages[i].cpus * inside / row.interval / ranks;
        if (now >= kStages[i].seconds) row.memory = kStages[i].memory + kStages[i].growth * (now - kStages[i].seconds);
      }
      row.cpus = std::max(0.0, row.cpus + error(random) / ranks);
      row.memory *= kMiB * (1 + 0.02 * error(random)) / ranks;
      rows.push_back(row);
      before = now;
    }
  }
  return rows;
}

TEST(RecommendTest, FindsPhasesWithinOneSample) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const double interval = seed % 2 == 0 ? 1 : 0.5;
    const int ranks = 1 + static_cast<int>(seed % 3);
    const auto samples = SumOfRanks(Trace(ranks, interval, seed, 0.04), 0, ranks);
    const auto phases = FindPhases(samples);
    ASSERT_EQ(phases.size(), kStages.size()) << "seed " << seed;
    for (size_t i = 1; i < kStages.size(); ++i) {
      EXPECT_NEAR(phases[i].begin, kStages[i].seconds, 1.1 * interval) << "seed " << seed;
      EXPECT_EQ(phases[i].begin, phases[i - 1].end);
    }
    EXPECT_NEAR(SummarizeCpus(phases[1].samples).mean, 1.9, 0.1);
    EXPECT_NEAR(SummarizeMemory(phases[1].samples).p95 / kMiB, 600, 10);
  }
}

TEST(RecommendTest, WhatOnlyFluctuatesIsOnePhase) {
  std::mt19937 random(7);
  std::normal_distribution<double> error(0, 1);
  for (const size_t count : {1, 2, 3, 50, 5000}) {
    std::vector<UsageSample> samples;
    for (size_t i = 0; i < count; ++i) {
      const auto at = static_cast<double>(i);
      samples.push_back({at, at + 1, 1 + 0.1 * error(random), (500 + error(random)) * kMiB, ""});
    }
    EXPECT_EQ(FindPhases(samples).size(), 1u) << count;
  }
  EXPECT_TRUE(FindPhases({}).empty());
  std::vector<UsageSample> spike;
  for (size_t i = 0; i < 50; ++i) {
    const auto at = static_cast<double>(i);
    spike.push_back({at, at + 1, i == 20 ? 3.0 : 1.0, 500 * kMiB, ""});
  }
  EXPECT_EQ(FindPhases(spike).size(), 1u);
}

TEST(RecommendTest, ActivitiesArePhasesAsTheyAre) {
  std::vector<UsageSample> samples;
  const std::vector<std::string> names = {"", "", "loading", "training", "training", "loading"};
  for (size_t i = 0; i < names.size(); ++i) {
    const auto at = static_cast<double>(i);
    samples.push_back({at, at + 1, 1, 1, names[i]});
  }
  const auto phases = FindPhases(samples);
  ASSERT_EQ(phases.size(), 4u);
  EXPECT_EQ(phases[1].activity, "loading");
  EXPECT_EQ(phases[1].begin, 2);
  EXPECT_EQ(phases[2].end, 5);
}

TEST(RecommendTest, SumsRanksWhoseLooksAreAtOtherTimes) {
  const std::vector<UsageRow> rows = {{1, 1, 0, 1.0, 100, "a"},
                                      {2, 1, 0, 1.0, 100, "a"},
                                      {1.5, 1.5, 1, 0.5, 10, "b"},
                                      {2.5, 1, 1, 1.5, 20, "b"},
                                      {1, 1, 2, 9, 9, ""}};
  const auto samples = SumOfRanks(rows, 0, 2);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_DOUBLE_EQ(samples[0].cpus, 1.5);
  EXPECT_DOUBLE_EQ(samples[1].cpus, 1 + 0.5 * 0.5 + 1.5 * 0.5);
  EXPECT_EQ(samples[0].memory, 110);
  EXPECT_EQ(samples[1].memory, 120);
  EXPECT_EQ(samples[1].activity, "a");
  EXPECT_TRUE(SumOfRanks(rows, 3, 9).empty());
}

TEST(RecommendTest, NothingBeganBeforeTheJob) {
  const std::vector<UsageRow> rows = {{.seconds = 1, .interval = 100, .rank = 0, .cpus = 1},
                                      {.seconds = 2, .interval = 1, .rank = 0, .cpus = 2}};
  const auto samples = SumOfRanks(rows, 0, 1);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].begin, 1);
  EXPECT_TRUE(SumOfRanks(std::span(rows).first(1), 0, 1).empty());
}

TEST(RecommendTest, ATraceThatTellsNothingOrTheImpossibleIsAnError) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "trace.csv";
  const std::string plot = folder.path() / "plot.svg";
  const auto recommend = [&](const std::string& rows) {
    std::ofstream(path) << "seconds,interval,rank,cpus,memory_bytes,activity,gpus,gpu_memory_bytes\n" << rows;
    return RunRecommend({path, "--ranks-per-worker", "1", "--plot", plot});
  };
  EXPECT_THAT(recommend("1,100,0,1,1,,,\n"), MatchesStatus(StatusCode::kInvalidArgument, "; try: a longer run"));
  EXPECT_THAT(recommend("1,100,0,1,1,,,\n2,3,1,1,1,,,\n"), MatchesStatus(StatusCode::kInvalidArgument, "; try: "));
  EXPECT_THAT(recommend("1e9,1e-9,0,1,1,,,\n"), MatchesStatus(StatusCode::kInvalidArgument, "; try: "));
  EXPECT_THAT(recommend("1,1,0,1,1,,,\n2,9,1,1,1,,,\n"), IsOk()) << "one rank tells something";
  for (const char* row : {"1,1,0,1e300,1,,,", "1,1,0,1,1e300,,,", "1e300,1,0,1,1,,,", "1e300,1e300,0,1,1,,,",
                          "1,1,0,1,1,,1e300,1", "1,1,0,1,1,,1,1e300", "1,0,0,1,1,,,", "1,nan,0,1,1,,,"}) {
    EXPECT_THAT(recommend(row), MatchesStatus(StatusCode::kInvalidArgument, ":2: no row")) << row;
  }
  EXPECT_THAT(recommend("1,1,0,100000,1e18,,100000,1e18\n2,1,0,0,0,,,\n"), IsOk());
}

TEST(RecommendTest, SummariesAreWeightedByTime) {
  const std::vector<UsageSample> samples = {{0, 94, 1, 10, ""}, {94, 96, 3, 30, ""}, {96, 100, 5, 20, ""}};
  const UsageSummary cpus = SummarizeCpus(samples);
  EXPECT_DOUBLE_EQ(cpus.mean, 0.94 + 0.06 + 0.2);
  EXPECT_EQ(cpus.p95, 3);
  EXPECT_EQ(cpus.peak, 5);
  EXPECT_EQ(SummarizeMemory(samples).p95, 20);
}

TEST(RecommendTest, MeetsTheDemandWithTheMargin) {
  // 95 % of 100 s with 1 and 10 s with 6 processors: 1 * 100 + c * 10 = 0.95 * 160 at c = 5.2.
  const std::vector<UsageSample> samples = {{0, 100, 1, 500 * kMiB, ""}, {100, 110, 6, 900 * kMiB, ""}};
  const Recommendation request = Recommend({samples});
  EXPECT_NEAR(request.cpus, 5.8, 1e-9);  // 5.2 * 1.1 = 5.72
  EXPECT_NEAR(request.met, 158.0 / 160, 1e-9);
  EXPECT_EQ(request.memory, 990 * kMiB);
  EXPECT_EQ(request.size, "m");
  EXPECT_EQ(Recommend({{{0, 1, 0, 0, ""}}}).size, "s");
  EXPECT_EQ(Recommend({{{0, 1, 100, 0, ""}}}).size, "");
  // Of two workers the busier one counts for the processors, the larger one for the memory.
  EXPECT_EQ(Recommend({samples, {{0, 110, 0, 2000 * kMiB, ""}}}).memory, 2200 * kMiB);
}

// Four ranks, of which three use a GPU each: two of them on the second worker of two ranks.
TEST(RecommendTest, GpusOfTheWorkerThatNeedsMost) {
  std::vector<UsageRow> rows;
  for (int rank = 0; rank < 4; ++rank) {
    for (int at = 1; at <= 3; ++at) {
      rows.push_back({.seconds = 1.0 * at, .interval = 1, .rank = rank, .cpus = 2, .memory = 500 * kMiB});
      if (rank == 0) continue;
      rows.back().gpus = 0.25 * at;
      rows.back().gpu_memory = 10'000 * kMiB * (rank == 2 && at == 3 ? 3 : 1);
    }
  }
  const GpuNeed need = GpusOf(rows, 2);
  EXPECT_EQ(need.gpus, 2);
  EXPECT_EQ(need.memory, 30'000 * kMiB);
  EXPECT_EQ(GpusOf(rows, 4).gpus, 3);
  const auto samples = SumOfRanks(rows, 2, 4);
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_DOUBLE_EQ(samples[1].gpus, 1);
  EXPECT_EQ(samples[2].gpu_memory, 40'000 * kMiB);
  const Recommendation request = Recommend({SumOfRanks(rows, 0, 2), samples}, need);
  EXPECT_EQ(request.gpu.memory, 33'000 * kMiB);
  EXPECT_EQ(request.size, "a100");  // 33,000 MiB: more than an L4 has
  EXPECT_EQ(Recommend({samples}, {.gpus = 2, .memory = 1}).size, "l4");
  EXPECT_EQ(Recommend({samples}, {.gpus = 1, .memory = 90'000 * kMiB}).size, "");
  EXPECT_EQ(Recommend({{{0, 1, 20, 1, ""}}}, {.gpus = 2, .memory = 1}).size, "a100");  // 22 CPUs: 2 x 7 are too few
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "trace.csv";
  std::ofstream file(path);
  file << "seconds,interval,rank,cpus,memory_bytes,activity,gpus,gpu_memory_bytes\n";
  for (const UsageRow& row : rows) {
    file << row.seconds << ",1," << row.rank << ",2,1000,training," << row.gpus << "," << std::fixed << row.gpu_memory
         << "\n";
  }
  file.close();
  const auto text = RunRecommend({path, "--ranks-per-worker", "2"});
  ASSERT_THAT(text, IsOk());
  EXPECT_NE(text->find("\n  gpu: 2 (one for each rank that used any), of 33000Mi each"), std::string::npos) << *text;
  EXPECT_NE(text->find("; try: gyrerun manifest --size a100 --gpus 2\n"), std::string::npos) << *text;
  EXPECT_NE(text->find("GPU memory, MiB"), std::string::npos) << *text;
}

TEST(RecommendTest, TheCommand) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "trace.csv";
  const std::string plot = folder.path() / "plot.svg";
  std::ofstream file(path);
  file << "seconds,interval,rank,cpus,memory_bytes,activity,gpus,gpu_memory_bytes\n";
  for (const UsageRow& row : Trace(2, 1, 3, 0.04)) {
    file << row.seconds << "," << row.interval << "," << row.rank << "," << row.cpus << "," << row.memory << ",,,\n";
  }
  file.close();
  const auto text = RunRecommend({path, "--plot", plot, "--ranks-per-worker", "1"});
  ASSERT_THAT(text, IsOk());
  EXPECT_NE(text->find("2 ranks, 53.0 s, 53 looks, 4 phases"), std::string::npos) << *text;
  EXPECT_NE(text->find("a worker of 1 rank:\n  cpu: 1."), std::string::npos) << *text;
  EXPECT_NE(text->find("nearest size: s"), std::string::npos) << *text;
  std::ifstream drawn(plot);
  const std::string svg{std::istreambuf_iterator<char>(drawn), {}};
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_THAT(RunRecommend({}), MatchesStatus(StatusCode::kInvalidArgument, "; try: gyrerun recommend --help"));
  EXPECT_THAT(RunRecommend({"/no/such/file"}), MatchesStatus(StatusCode::kInvalidArgument, "; try: "));
  EXPECT_FALSE(RunRecommend({path, "--plot", "/no/such/folder/f"}).ok());
}

}  // namespace

}  // namespace gyre::launch
