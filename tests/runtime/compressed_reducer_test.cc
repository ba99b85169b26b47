// Gradients that travel compressed. Over ranks of one host compression is forced; over several it is the model's choice
// unless a test forces it too.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "gyre/distributed_optimizer.h"
#include "gyre/reducer.h"
#include "gyre/runtime.h"
#include "runtime/compressed_gradients.h"
#include "runtime/compression_cost.h"
#include "runtime/compressor.h"
#include "runtime/reducer_fixture.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::CountOf;
using support::GradientOf;
using support::IsOk;
using support::kShapes;
using support::MatchesStatus;
using support::Rank;
using support::RunThreads;

struct Worker {
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<GradientReducer> reducer;
  std::vector<int> index;

  absl::Status Start(std::unique_ptr<Runtime> joined, const ReducerOptions& options) {
    runtime = std::move(joined);
    if (runtime == nullptr) return absl::InternalError("no runtime");
    auto made = GradientReducer::Create(runtime->world(), options);
    if (!made.ok()) return made.status();
    reducer = *std::move(made);
    for (size_t t = 0; t < kShapes.size(); ++t) {
      const auto added = reducer->Register(absl::StrCat("layer", t), kShapes[t]);
      if (!added.ok()) return added.status();
      index.push_back(*added);
    }
    return reducer->Start();
  }

  std::span<float> values(size_t t) const {
    const TensorView view = reducer->gradient(index[t]);
    return {static_cast<float*>(view.data), static_cast<size_t>(view.count)};
  }

  absl::StatusOr<StepSummary> Step(int64_t step) {
    for (size_t t = kShapes.size(); t-- > 0;) {
      for (int64_t i = 0; i < CountOf(kShapes[t]); ++i) {
        values(t)[static_cast<size_t>(i)] = GradientOf(runtime->world().rank(), t, i, step);
      }
      if (const absl::Status ready = reducer->Ready(index[t]); !ready.ok()) return ready;
    }
    return reducer->Wait();
  }

  // What all ranks together keep of each gradient: the last array of each codec's. The layout is state.h's.
  std::vector<std::vector<float>> SumKept() {
    const std::vector<std::byte> saved = reducer->SaveCompression();
    std::vector<std::vector<float>> kept;
    const auto number = [&](size_t at, auto value) {
      std::memcpy(&value, &saved[at], sizeof(value));
      return value;
    };
    size_t at = 16;
    for (uint32_t codec = 0; codec < number(8, uint32_t{0}); ++codec) {
      const auto arrays = number(at, uint32_t{0});
      const auto count = static_cast<size_t>(number(at + 8, int64_t{0}));
      at += 16;
      kept.emplace_back(count);
      for (uint32_t array = 0; array < arrays; ++array, at += count * sizeof(float)) {
        std::memcpy(kept.back().data(), &saved[at], count * sizeof(float));
      }
      EXPECT_THAT(runtime->world().AllReduce(kept.back()), IsOk());
    }
    return kept;
  }

  // All ranks have the same results, bit by bit.
  void ExpectSameEverywhere() {
    for (size_t t = 0; t < kShapes.size(); ++t) {
      std::vector<float> root(values(t).begin(), values(t).end());
      ASSERT_THAT(runtime->world().Broadcast(root, 0), IsOk());
      ASSERT_EQ(std::memcmp(root.data(), values(t).data(), values(t).size_bytes()), 0) << "gradient " << t;
    }
  }
};

// Everything that a rank ever had to send has arrived, once, or is kept.
class EveryCodec : public testing::TestWithParam<std::string> {};

void ExpectNothingIsLost(const Rank& rank, const std::string& name, std::unique_ptr<Runtime> runtime) {
  ReducerOptions options{.prescale = 0.5, .postscale = 3, .bucket_bytes = 9000, .always_compress = true};
  const auto parsed = ParseCompression(name);
  ASSERT_THAT(parsed, IsOk());
  options.compression = *parsed;
  const bool momentum = std::holds_alternative<Dgc>(*parsed);
  if (auto* dgc = std::get_if<Dgc>(&*options.compression)) dgc->momentum = 0;
  Worker worker;
  ASSERT_THAT(worker.Start(std::move(runtime), options), IsOk());
  const double scale = 1.5 / rank.size;
  constexpr int64_t kSteps = 6;
  std::vector<std::vector<double>> sums, expected;
  for (const auto& shape : kShapes) {
    sums.emplace_back(static_cast<size_t>(CountOf(shape)));
    expected.emplace_back(static_cast<size_t>(CountOf(shape)));
  }
  for (int64_t step = 1; step <= kSteps; ++step) {
    const auto summary = worker.Step(step);
    ASSERT_THAT(summary, IsOk());
    EXPECT_EQ(summary->compression, CompressionUse::kAsForced);
    EXPECT_GT(summary->compressed_calls, 0);
    EXPECT_LE(summary->compressed_calls, summary->calls);
    EXPECT_GT(summary->compressed_bytes, 0);
    worker.ExpectSameEverywhere();
    for (size_t t = 0; t < kShapes.size(); ++t) {
      for (size_t i = 0; i < sums[t].size(); ++i) {
        sums[t][i] += worker.values(t)[i];
        double sum = 0;
        for (int r = 0; r < rank.size; ++r) sum += GradientOf(r, t, static_cast<int64_t>(i), step);
        expected[t][i] += scale * sum;
        // What is not covered goes as it is.
        if (t % 2 == 1) {
          ASSERT_NEAR(worker.values(t)[i], scale * sum, 1e-5) << t << " " << i;
        }
      }
    }
  }
  EXPECT_EQ(worker.reducer->carries_momentum(worker.index[0]), momentum);
  EXPECT_FALSE(worker.reducer->carries_momentum(worker.index[1]));
  if (name == "ternary") {  // keeps nothing: right in the mean
    double product = 0, squares = 0, expected_squares = 0;
    for (size_t i = 0; i < sums[0].size(); ++i) {
      product += sums[0][i] * expected[0][i];
      squares += sums[0][i] * sums[0][i];
      expected_squares += expected[0][i] * expected[0][i];
    }
    EXPECT_GT(product / std::sqrt(squares * expected_squares), 0.4);
    EXPECT_NEAR(product / expected_squares, 1, 0.2);
    return;
  }
  const auto kept = worker.SumKept();
  ASSERT_EQ(kept.size(), 2u);
  for (const size_t t : {0, 2}) {
    for (size_t i = 0; i < sums[t].size(); ++i) {
      ASSERT_NEAR(sums[t][i] + scale * kept[t / 2][i], expected[t][i], 2e-5) << name << " " << t << " " << i;
    }
  }
}

TEST_P(EveryCodec, LosesNothingOnOneHost) {
  RunThreads(3, [](const Rank& rank) { ExpectNothingIsLost(rank, GetParam(), JoinJob(rank)); });
}

TEST_P(EveryCodec, LosesNothingOverHosts) {
  RunThreads(4, [](const Rank& rank) {
    ExpectNothingIsLost(rank, GetParam(), JoinJob(rank, JobOptions(rank, {2, 1, 1})));
  });
}

// Hosts of several ranks reduce in their memory first; with 3 + 1, one rank of each host has all of every gradient.
TEST(CompressedReducer, HostsReduceFirstAndLoseNothing) {
  for (const support::HostSizes& hosts : {support::HostSizes{2, 2}, support::HostSizes{3, 1}}) {
    for (const char* name : {"dgc:0.9", "topk:0.9", "randomk:0.9", "dgc-global:0.9"}) {
      RunThreads(4, [&](const Rank& rank) { ExpectNothingIsLost(rank, name, JoinJob(rank, JobOptions(rank, hosts))); });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Names, EveryCodec,
                         testing::Values("fp16", "bf16", "fp8", "fp8-e5m2", "int8", "int4", "sign", "ternary",
                                         "topk:0.9", "topk-sampled:0.9", "randomk:0.9", "powersgd:2", "dgc:0.9",
                                         "topk-global:0.9", "dgc-global:0.9"),
                         [](const auto& info) {
                           std::string name = info.param.substr(0, info.param.find(':'));
                           std::erase(name, '-');
                           return name;
                         });

// --- What goes dense ---

TEST(CompressedReducer, GoesDenseWithinAHostUnlessForced) {
  RunThreads(2, [](const Rank& rank) {
    Worker worker;
    ASSERT_THAT(worker.Start(JoinJob(rank), {.op = ReduceOp::kSum, .compression = Dgc{}}), IsOk());
    const auto summary = worker.Step(1);
    ASSERT_THAT(summary, IsOk());
    EXPECT_EQ(summary->compression, CompressionUse::kOneHost);
    EXPECT_EQ(summary->compressed_calls, 0);
    EXPECT_FALSE(worker.reducer->carries_momentum(worker.index[0]));
    for (size_t i = 0; i < 100; ++i) {
      const auto element = static_cast<int64_t>(i);
      EXPECT_EQ(worker.values(0)[i], GradientOf(0, 0, element, 1) + GradientOf(1, 0, element, 1));
    }
    EXPECT_TRUE(worker.reducer->SaveCompression().empty());
  });
}

TEST(CompressedReducer, SaysThatNothingIsLargeEnough) {
  RunThreads(1, [](const Rank& rank) {
    Worker worker;
    ASSERT_THAT(worker.Start(JoinJob(rank), {.compression = Dgc{.min_dimensions = 4}, .always_compress = true}),
                IsOk());
    const auto summary = worker.Step(1);
    ASSERT_THAT(summary, IsOk());
    EXPECT_EQ(summary->compression, CompressionUse::kNoneFits);
  });
}

// Whatever the model of the loopback says, all ranks do the same, and lose nothing when a bucket goes dense.
TEST(CompressedReducer, ChoosesByCostOverHosts) {
  RunThreads(2, [](const Rank& rank) {
    Worker worker;
    ASSERT_THAT(worker.Start(JoinJob(rank, JobOptions(rank, {1, 1})), {.compression = Int8{}}), IsOk());
    for (int64_t step = 1; step <= 3; ++step) {
      const auto summary = worker.Step(step);
      ASSERT_THAT(summary, IsOk());
      EXPECT_EQ(summary->compression, CompressionUse::kByCost);
      EXPECT_FALSE(CompressionUseText(summary->compression).empty());
      worker.ExpectSameEverywhere();
    }
  });
}

// Every 64th step the choice is made again, by all ranks alike; nothing is lost, whatever comes of it.
TEST(CompressedReducer, ChoosesAgainFromTimeToTime) {
  RunThreads(3, [](const Rank& rank) {
    Worker worker;
    const ReducerOptions options{.op = ReduceOp::kSum, .compression = Dgc{.sparsity = 0.9, .momentum = 0}};
    ASSERT_THAT(worker.Start(JoinJob(rank, JobOptions(rank, {1, 2})), options), IsOk());
    std::vector<double> sums(static_cast<size_t>(CountOf(kShapes[0]))), expected(sums.size());
    for (int64_t step = 1; step <= 130; ++step) {
      const auto summary = worker.Step(step);
      ASSERT_THAT(summary, IsOk());
      EXPECT_EQ(summary->compression, CompressionUse::kByCost);
      if (step > 2) {  // the plan is there
        EXPECT_EQ(summary->control_messages, step % 64 == 0 ? 1 : 0) << step;
      }
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i] += worker.values(0)[i];
        for (int r = 0; r < 3; ++r) expected[i] += GradientOf(r, 0, static_cast<int64_t>(i), step);
      }
    }
    worker.ExpectSameEverywhere();
    const auto kept = worker.SumKept();
    for (size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(sums[i] + kept[0][i], expected[i], 1e-4) << i;
  });
}

TEST(CompressionCost, ATenthIsNoReasonForAChange) {
  EXPECT_TRUE(internal::StaysOrTurnsCompressed(true, 1.09, 1));
  EXPECT_FALSE(internal::StaysOrTurnsCompressed(true, 1.11, 1));
  EXPECT_FALSE(internal::StaysOrTurnsCompressed(false, 0.91, 1));
  EXPECT_TRUE(internal::StaysOrTurnsCompressed(false, 0.89, 1));
}

TEST(CompressionCost, PaysOnSlowNetworksOnly) {
  using internal::CompressedSeconds;
  using internal::NetworkShape;
  constexpr int64_t kElements = 1 << 21;
  const auto dense = [](const NetworkShape& network) {
    return 2 * (1 - 1.0 / network.hosts) * kElements * 4 / network.bytes_per_second;
  };
  const internal::CodecSpeed speed{.encode = 0.5e-9, .decode = 0.3e-9};
  for (const Compression& compression : {Compression(Dgc{}), Compression(Int8{}), Compression(PowerSgd{})}) {
    const double share = internal::PayloadShare(compression, 1024, 2048);
    const NetworkShape slow{.hosts = 4, .ranks = 4, .most_local = 1, .bytes_per_second = 125e6};
    const NetworkShape fast{.hosts = 4, .ranks = 4, .most_local = 1, .bytes_per_second = 25e9};
    EXPECT_LT(CompressedSeconds(compression, kElements, 1000, share, speed, slow), dense(slow));
    EXPECT_GT(CompressedSeconds(compression, kElements, 1000, share, speed, fast), dense(fast));
  }
  // An allgather loses to an allreduce where many ranks send much.
  const NetworkShape many{.hosts = 512, .ranks = 512, .most_local = 1, .bytes_per_second = 125e6};
  const Compression random = RandomK{.sparsity = 0.99}, top = TopK{.sparsity = 0.99};
  EXPECT_GT(CompressedSeconds(random, kElements, 0, internal::PayloadShare(random, 1, 1), {}, many), dense(many));
  // Sums by regions are never more than the dense ones.
  EXPECT_LT(CompressedSeconds(top, kElements, 0, internal::PayloadShare(top, 1, 1), {}, many), dense(many));
}

TEST(CompressionRequest, IsReadFromTheVariableWhereOptionsSayNothing) {
  const auto asked = internal::RequestOf({}, "dgc:0.9:always");
  ASSERT_THAT(asked, IsOk());
  EXPECT_TRUE(asked->always);
  EXPECT_EQ(std::get<Dgc>(asked->compression).sparsity, 0.9);
  const auto own = internal::RequestOf({.compression = Int8{}}, "dgc:0.9:always");
  ASSERT_THAT(own, IsOk());
  EXPECT_FALSE(own->always);
  EXPECT_TRUE(std::holds_alternative<Int8>(own->compression));
  EXPECT_FALSE(internal::RequestOf({}, "")->asked());
  EXPECT_THAT(internal::RequestOf({}, "gzip"), MatchesStatus(StatusCode::kInvalidArgument, "GYRE_COMPRESSION: "));
  EXPECT_THAT(internal::RequestOf({.max_norm = 1, .compression = Dgc{}}, ""),
              MatchesStatus(StatusCode::kInvalidArgument, "Dgc::clip"));
}

// --- From anywhere ---

// Small whole numbers survive halves, so sums are exact: of several dtypes, from memory of the reducer's and of the
// program's own, unaligned, in any order, with gradients that a rank has not, and others without elements.
TEST(CompressedReducer, TakesGradientsFromAnyMemory) {
  for (const support::HostSizes& hosts : {support::HostSizes{3}, support::HostSizes{2, 1}}) {
    RunThreads(3, [&](const Rank& rank) {
      support::Trainer trainer(rank, support::MixedParameters());
      const ReducerOptions options{
          .op = ReduceOp::kSum, .bucket_bytes = 64 << 10, .compression = Fp16{}, .always_compress = true};
      ASSERT_THAT(trainer.StartIn(JoinJob(rank, JobOptions(rank, hosts)), options), IsOk());
      const auto own = [&](size_t p, int64_t step) { return (p + static_cast<size_t>(rank + step)) % 3 == 0; };
      const auto gave = [](int r, size_t p) { return r != 1 || p != 4; };
      for (int64_t step = 1; step <= 4; ++step) {
        for (const size_t p : trainer.Shuffled()) {
          ASSERT_THAT(gave(rank, p) ? trainer.Give(p, step, own(p, step)) : trainer.reducer->Missing(trainer.index[p]),
                      IsOk());
        }
        const auto summary = trainer.reducer->Wait();
        ASSERT_THAT(summary, IsOk());
        EXPECT_GE(summary->compressed_calls, 2);
        for (size_t p = 0; p < trainer.parameters.size(); ++p) {
          const TensorView view = gave(rank, p) && own(p, step) ? trainer.own(p) : trainer.shared(p);
          trainer.ExpectSum(view, p, step, 1, [&](int r) { return gave(r, p); });
        }
      }
    });
  }
}

TEST(CompressedReducer, DgcTakesFloatsOnly) {
  RunThreads(1, [](const Rank& rank) {
    support::Trainer trainer(rank, {{{64, 64}, DType::kF16}});
    EXPECT_THAT(trainer.Start({.compression = Dgc{}, .always_compress = true}),
                MatchesStatus(StatusCode::kInvalidArgument, "\"layer0\" is of f16"));
  });
}

TEST(CompressedReducer, DgcClipsEachRanksGradient) {
  RunThreads(2, [](const Rank& rank) {
    Worker worker;
    const Dgc dgc{.sparsity = 0, .momentum = 0, .clip = 1};
    ASSERT_THAT(worker.Start(JoinJob(rank), {.op = ReduceOp::kSum, .compression = dgc, .always_compress = true}),
                IsOk());
    ASSERT_THAT(worker.Step(1), IsOk());
    double scales[2];
    for (int r = 0; r < 2; ++r) {
      double squares = 0;
      for (const size_t t : {0, 2}) {
        for (int64_t i = 0; i < CountOf(kShapes[t]); ++i) squares += std::pow(GradientOf(r, t, i, 1), 2);
      }
      scales[r] = 1 / std::sqrt(2 * squares);
      ASSERT_LT(scales[r], 1);
    }
    for (const size_t t : {0, 2}) {
      for (int64_t i = 0; i < CountOf(kShapes[t]); ++i) {
        const double sum = scales[0] * GradientOf(0, t, i, 1) + scales[1] * GradientOf(1, t, i, 1);
        ASSERT_NEAR(worker.values(t)[static_cast<size_t>(i)], sum, 1e-6) << t << " " << i;
      }
    }
  });
}

// Half of the elements of three ranks are more than an allreduce carries.
TEST(CompressedReducer, DgcWarmsUpDenseWhereThatIsLess) {
  RunThreads(3, [](const Rank& rank) {
    Worker worker;
    const Dgc dgc{.sparsity = 0.9, .momentum = 0, .warmup = {0.5}, .warmup_steps = 2};
    ASSERT_THAT(worker.Start(JoinJob(rank), {.op = ReduceOp::kSum, .compression = dgc, .always_compress = true}),
                IsOk());
    for (int64_t step = 1; step <= 3; ++step) {
      const auto summary = worker.Step(step);
      ASSERT_THAT(summary, IsOk());
      EXPECT_EQ(summary->compressed_calls > 0, step == 3);
      int zeros = 0;
      for (int64_t i = 0; i < CountOf(kShapes[0]); ++i) {
        double sum = 0;
        for (int r = 0; r < 3; ++r) sum += GradientOf(r, 0, i, step);
        const float value = worker.values(0)[static_cast<size_t>(i)];
        if (step < 3) {
          ASSERT_NEAR(value, sum, 1e-6) << i;
        }
        zeros += value == 0 ? 1 : 0;
      }
      EXPECT_EQ(zeros > 1000, step == 3);
    }
  });
}

// --- State ---

// All results of a step, one after the other.
std::vector<float> ResultsOf(Worker& worker, int64_t step) {
  EXPECT_THAT(worker.Step(step), IsOk());
  std::vector<float> all;
  for (size_t t = 0; t < kShapes.size(); ++t) all.insert(all.end(), worker.values(t).begin(), worker.values(t).end());
  return all;
}

void ExpectGoesOn(const Compression& compression, const support::HostSizes& hosts) {
  const int ranks = std::accumulate(hosts.begin(), hosts.end(), 0);
  RunThreads(ranks, [&](const Rank& rank) {
    const ReducerOptions options{.compression = compression, .always_compress = true};
    Worker first, second;
    ASSERT_THAT(first.Start(JoinJob(rank, JobOptions(rank, hosts)), options), IsOk());
    for (int64_t step = 1; step <= 3; ++step) ASSERT_THAT(first.Step(step), IsOk());
    const std::vector<std::byte> saved = first.reducer->SaveCompression();
    std::vector<std::vector<float>> straight;
    for (int64_t step = 4; step <= 6; ++step) straight.push_back(ResultsOf(first, step));
    // In the same job: another reducer of it.
    second.runtime = std::move(first.runtime);
    second.reducer = *GradientReducer::Create(second.runtime->world(), options);
    for (size_t t = 0; t < kShapes.size(); ++t) {
      second.index.push_back(*second.reducer->Register(absl::StrCat("layer", t), kShapes[t]));
    }
    const std::span<const std::byte> all[] = {saved};
    EXPECT_THAT(second.reducer->RestoreCompression(all), MatchesStatus(StatusCode::kFailedPrecondition, "started"));
    ASSERT_THAT(second.reducer->Start(), IsOk());
    const std::span<const std::byte> damaged[] = {std::span(saved).first(saved.size() - 1)};
    EXPECT_THAT(second.reducer->RestoreCompression(damaged), MatchesStatus(StatusCode::kDataLoss, "checksum"));
    ASSERT_THAT(second.reducer->RestoreCompression(all), IsOk());
    for (int64_t step = 4; step <= 6; ++step) {
      const std::vector<float> resumed = ResultsOf(second, step), &expected = straight[static_cast<size_t>(step - 4)];
      EXPECT_EQ(std::memcmp(resumed.data(), expected.data(), resumed.size() * sizeof(float)), 0)
          << CompressionName(compression) << " on " << hosts.size() << " hosts, step " << step;
    }
    first.reducer.reset();
  });
}

TEST_P(EveryCodec, GoesOnFromItsStateToTheBit) {
  const auto parsed = ParseCompression(GetParam());
  ASSERT_THAT(parsed, IsOk());
  ExpectGoesOn(*parsed, {2});
}

TEST(CompressedReducer, GoesOnFromItsState) {
  ExpectGoesOn(Dgc{.sparsity = 0.95}, {2, 2});
  ExpectGoesOn(TopK{.sparsity = 0.9}, {3, 1});
  ExpectGoesOn(TopK{.sparsity = 0.9, .global = true}, {1, 1, 1});
  ExpectGoesOn(Dgc{.sparsity = 0.95, .warmup = {0.75, 0.9}, .warmup_steps = 2}, {3});
}

// powersgd:2 and powersgd:4 keep as many floats.
TEST(CompressedReducer, StateOfAnotherCompressionIsRefusedAndChangesNothing) {
  RunThreads(2, [](const Rank& rank) {
    Worker two, four;
    ASSERT_THAT(two.Start(JoinJob(rank), {.compression = PowerSgd{2}, .always_compress = true}), IsOk());
    ASSERT_THAT(two.Step(1), IsOk());
    const std::vector<std::byte> saved = two.reducer->SaveCompression();
    const std::span<const std::byte> all[] = {saved};
    four.runtime = std::move(two.runtime);
    four.reducer =
        *GradientReducer::Create(four.runtime->world(), {.compression = PowerSgd{4}, .always_compress = true});
    for (size_t t = 0; t < kShapes.size(); ++t) {
      four.index.push_back(*four.reducer->Register(absl::StrCat("layer", t), kShapes[t]));
    }
    ASSERT_THAT(four.reducer->Start(), IsOk());
    const std::vector<std::byte> before = four.reducer->SaveCompression();
    EXPECT_THAT(four.reducer->RestoreCompression(all),
                MatchesStatus(StatusCode::kInvalidArgument, "another compression"));
    EXPECT_TRUE(four.reducer->SaveCompression() == before);
    two.reducer.reset();
  });
}

// --- What goes wrong ---

TEST(CompressedReducer, RanksThatDisagreeFindOut) {
  RunThreads(2, [](const Rank& rank) {
    Worker worker;
    const double sparsity = rank == 0 ? 0.99 : 0.9;
    EXPECT_THAT(worker.Start(JoinJob(rank), {.compression = TopK{.sparsity = sparsity}, .always_compress = true}),
                MatchesStatus(StatusCode::kInvalidArgument, "rank 0 has \"op average, prescale 1"));
  });
}

TEST(CompressedReducer, NotFiniteIsSkippedByAllAlike) {
  RunThreads(2, [](const Rank& rank) {
    Worker worker;
    ASSERT_THAT(worker.Start(JoinJob(rank), {.skip_non_finite = true, .compression = Int4{}, .always_compress = true}),
                IsOk());
    for (int64_t step = 1; step <= 2; ++step) {
      for (size_t t = 0; t < kShapes.size(); ++t) {
        std::ranges::fill(worker.values(t), 1.0f);
        if (rank == 1 && step == 1 && t == 2) worker.values(t)[5] = std::numeric_limits<float>::quiet_NaN();
        ASSERT_THAT(worker.reducer->Ready(worker.index[t]), IsOk());
      }
      const auto summary = worker.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      EXPECT_EQ(summary->skipped, step == 1);
    }
  });
}

TEST(CompressedReducer, ARefusedGradientEndsTheStepOnAllRanks) {
  RunThreads(2, [](const Rank& rank) {
    Worker worker;
    const Dgc dgc{.non_finite = Dgc::NonFinite::kRefuse};
    ASSERT_THAT(worker.Start(JoinJob(rank), {.compression = dgc, .always_compress = true}), IsOk());
    for (size_t t = 0; t < kShapes.size(); ++t) {
      std::ranges::fill(worker.values(t), 1.0f);
      if (rank == 1 && t == 2) worker.values(t)[5] = std::numeric_limits<float>::infinity();
      worker.reducer->Ready(worker.index[t]).IgnoreError();
    }
    const auto code = rank == 1 ? StatusCode::kFailedPrecondition : StatusCode::kAborted;
    EXPECT_THAT(worker.reducer->Wait(), MatchesStatus(code, "layer2"));
  });
}

TEST(CompressedReducer, ALateRankIsNamed) {
  RunThreads(2, [](const Rank& rank) {
    Worker worker;
    const ReducerOptions options{
        .compression = Sign{}, .always_compress = true, .timeout = std::chrono::milliseconds(300)};
    ASSERT_THAT(worker.Start(JoinJob(rank), options), IsOk());
    // Either notices first; both say whose gradients are late.
    const auto late = rank == 0 ? worker.Step(1) : worker.reducer->Wait();
    ASSERT_FALSE(late.ok());
    EXPECT_NE(late.status().message().find("rank 1"), std::string::npos) << late.status();
  });
}

// Where hosts reduce first, calls are within a host or between hosts: whichever fails, all ranks learn.
TEST(CompressedReducer, WhereHostsReduceFirstFailuresReachAllRanks) {
  for (const support::HostSizes& hosts : {support::HostSizes{2, 2}, support::HostSizes{3, 1}}) {
    RunThreads(4, [&](const Rank& rank) {
      Worker worker;
      const Dgc dgc{.non_finite = Dgc::NonFinite::kRefuse};
      // A rank that is alone on its host may refuse before the others are through with Start.
      const absl::Status started =
          worker.Start(JoinJob(rank, JobOptions(rank, hosts)), {.compression = dgc, .always_compress = true});
      if (!started.ok()) {
        EXPECT_NE(started.message().find("layer2"), std::string::npos) << started;
        return;
      }
      for (size_t t = 0; t < kShapes.size(); ++t) {
        std::ranges::fill(worker.values(t), 1.0f);
        if (rank.rank == 3 && t == 2) worker.values(t)[5] = std::numeric_limits<float>::infinity();
        worker.reducer->Ready(worker.index[t]).IgnoreError();
      }
      const auto ended = worker.reducer->Wait();  // whoever answers for the element refuses it
      ASSERT_FALSE(ended.ok());
      EXPECT_NE(ended.status().message().find("layer2"), std::string::npos) << ended.status();
    });
    RunThreads(4, [&](const Rank& rank) {
      Worker worker;
      const ReducerOptions options{
          .compression = TopK{}, .always_compress = true, .timeout = std::chrono::milliseconds(500)};
      ASSERT_THAT(worker.Start(JoinJob(rank, JobOptions(rank, hosts)), options), IsOk());
      const auto begin = std::chrono::steady_clock::now();
      const auto late = rank.rank != 1 ? worker.Step(1) : worker.reducer->Wait();
      ASSERT_FALSE(late.ok());
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
      EXPECT_NE(late.status().message().find("rank 1"), std::string::npos) << late.status();
    });
    RunThreads(4, [&](const Rank& rank) {
      Worker worker;
      const absl::Status started =
          worker.Start(JoinJob(rank, JobOptions(rank, hosts)), {.compression = TopK{}, .always_compress = true});
      if (rank.rank == 2) return;  // leaves
      EXPECT_FALSE(started.ok() && worker.Step(1).ok());
    });
  }
}

// --- With an optimizer ---

struct Weights {
  std::vector<float> values = std::vector<float>(41 * 53, 1.0f);
  std::vector<float> bias = std::vector<float>(50, -1.0f);

  // `one_by_one`: the matrix is waited for and updated before the rest.
  absl::Status Train(Communicator& world, const OptimizerConfig& config, const ReducerOptions& options, int steps,
                     bool one_by_one = false) {
    auto made = DistributedOptimizer::Create(world, config, options);
    if (!made.ok()) return made.status();
    DistributedOptimizer& optimizer = **made;
    const std::array<int64_t, 2> shape = {41, 53};
    const auto matrix = optimizer.Register("matrix", values, shape);
    const auto vector = optimizer.Register("bias", bias);
    if (!matrix.ok() || !vector.ok()) return matrix.status();
    if (absl::Status started = optimizer.Start(); !started.ok()) return started;
    for (int step = 1; step <= steps; ++step) {
      for (const int index : {*vector, *matrix}) {
        const std::span<float> gradient = optimizer.gradient(index);
        for (size_t i = 0; i < gradient.size(); ++i) {
          gradient[i] = GradientOf(world.rank(), static_cast<size_t>(index), static_cast<int64_t>(i), step);
        }
        if (absl::Status ready = optimizer.Ready(index); !ready.ok()) return ready;
      }
      if (one_by_one) {
        const auto updated = optimizer.StepOne(*matrix);
        if (!updated.ok()) return updated.status();
        EXPECT_TRUE(*updated);
      }
      if (const auto stepped = optimizer.Step(); !stepped.ok()) return stepped.status();
    }
    return absl::OkStatus();
  }
};

// Without sparsity it is momentum SGD, weight decay and the gradients that go along included; with it, still near.
TEST(CompressedOptimizer, TakesMomentumOver) {
  for (const bool nesterov : {false, true}) {
    RunThreads(2, [&](const Rank& rank) {
      const auto runtime = JoinJob(rank);
      const Momentum momentum{.learning_rate = 0.1f, .nesterov = nesterov, .weight_decay = 0.01f};
      Weights dense, full, sparse, early;
      ASSERT_THAT(dense.Train(runtime->world(), momentum, {}, 8), IsOk());
      ReducerOptions options{.compression = Dgc{.sparsity = 0, .nesterov = nesterov}, .always_compress = true};
      ASSERT_THAT(full.Train(runtime->world(), momentum, options, 8), IsOk());
      options.compression = Dgc{.sparsity = 0.9, .nesterov = nesterov, .factor_masking = false};
      ASSERT_THAT(sparse.Train(runtime->world(), momentum, options, 8), IsOk());
      ASSERT_THAT(early.Train(runtime->world(), momentum, options, 8, /*one_by_one=*/true), IsOk());
      EXPECT_EQ(early.values, sparse.values);
      EXPECT_EQ(early.bias, sparse.bias);
      int differ = 0;
      for (size_t i = 0; i < dense.values.size(); ++i) {
        ASSERT_NEAR(full.values[i], dense.values[i], 2e-5) << i;
        differ += std::abs(sparse.values[i] - dense.values[i]) > 1e-3 ? 1 : 0;
      }
      EXPECT_GT(differ, 0);
      for (size_t i = 0; i < dense.bias.size(); ++i) {
        ASSERT_EQ(full.bias[i], dense.bias[i]);
        ASSERT_EQ(sparse.bias[i], dense.bias[i]);
      }
    });
  }
}

TEST(CompressedOptimizer, RefusesTwoMomentumsAndAdam) {
  RunThreads(1, [](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    const ReducerOptions options{.compression = Dgc{}};
    Weights weights;
    const auto expect = [&](const OptimizerConfig& config, const char* text) {
      EXPECT_THAT(weights.Train(runtime->world(), config, options, 1),
                  MatchesStatus(StatusCode::kInvalidArgument, text));
    };
    expect(Adam{}, "Adam");
    expect(Sgd{}, "dgc's is 0.9, the optimizer's 0;");
    expect(Momentum{.momentum = 0.5f}, "two momentums");
    expect(Momentum{.nesterov = true}, "Nesterov");
    EXPECT_THAT(weights.Train(runtime->world(), Momentum{}, options, 1), IsOk());
  });
}

}  // namespace
}  // namespace gyre
