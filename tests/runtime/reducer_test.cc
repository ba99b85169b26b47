#include "gyre/reducer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "fusion/plan.h"
#include "runtime/reducer_fixture.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;
using support::MixedParameters;
using support::Mode;
using support::Parameter;
using support::Rank;
using support::RunThreads;
using support::Trainer;

constexpr int64_t kSmallBuckets = 64 << 10;

// Some gradients in shared memory, some not: not even alike on all ranks.
bool ThirdInOwn(int rank, size_t parameter, int64_t step) {
  return (static_cast<size_t>(rank) + parameter + static_cast<size_t>(step)) % 3 == 0;
}

// What it takes to settle on a plan: in steps and messages.
struct Planning {
  int64_t steps;
  int messages;
};
constexpr Planning kBySize = {2, 1}, kByCost = {4, 2};

void TrainAndCheck(Trainer& trainer, int64_t steps, const Planning& planning) {
  for (int64_t step = 1; step <= steps; ++step) {
    for (const size_t p : trainer.Shuffled()) {
      ASSERT_THAT(trainer.Give(p, step, ThirdInOwn(trainer.rank, p, step)), IsOk());
    }
    const auto summary = trainer.reducer->Wait();
    ASSERT_THAT(summary, IsOk());
    EXPECT_EQ(summary->step, step);
    EXPECT_EQ(summary->control_messages, step == planning.steps ? planning.messages : 0);
    EXPECT_EQ(trainer.reducer->planned(), step >= planning.steps);
    for (size_t p = 0; p < trainer.parameters.size(); ++p) {
      const bool own = ThirdInOwn(trainer.rank, p, step);
      trainer.ExpectSum(own ? trainer.own(p) : trainer.shared(p), p, step, 1);
    }
  }
}

class ReducerOnRanks : public testing::TestWithParam<int> {};

TEST_P(ReducerOnRanks, SumsInAnyOrderFromAnyMemory) {
  RunThreads(GetParam(), [](const Rank& rank) {
    Trainer trainer(rank, MixedParameters());
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = kSmallBuckets}), IsOk());
    TrainAndCheck(trainer, 5, kBySize);
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ReducerOnRanks, testing::Values(1, 2, 3, 4));

TEST(Reducer, WorksBetweenProcesses) {
  support::RunProcesses(2, [](const Rank& rank) {
    Trainer trainer(rank, MixedParameters());
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum}), IsOk());
    TrainAndCheck(trainer, 6, kByCost);
  });
}

TEST(Reducer, WorksOverSeveralHosts) {
  RunThreads(3, [](const Rank& rank) {
    Trainer trainer(rank, MixedParameters());
    auto joined = JoinJob(rank, JobOptions(rank, {2, 1}));
    ASSERT_THAT(trainer.StartIn(std::move(joined), {.op = ReduceOp::kSum, .bucket_bytes = kSmallBuckets}), IsOk());
    TrainAndCheck(trainer, 4, kBySize);
  });
}

TEST(Reducer, AveragesAndScales) {
  RunThreads(2, [](const Rank& rank) {
    Trainer trainer(rank, {{{100}}, {{7}, DType::kF64}});
    ASSERT_THAT(trainer.Start({.prescale = 0.5, .postscale = 8}), IsOk());
    for (size_t p = 0; p < 2; ++p) ASSERT_THAT(trainer.Give(p, 1, false), IsOk());
    const auto summary = trainer.reducer->Wait();
    ASSERT_THAT(summary, IsOk());
    EXPECT_EQ(summary->bytes, 100 * 4 + 7 * 8);
    EXPECT_EQ(summary->buckets, 2);
    for (size_t p = 0; p < 2; ++p) trainer.ExpectSum(trainer.shared(p), p, 1, 2);
  });
}

TEST(Reducer, HasNothingToDoWithoutGradients) {
  RunThreads(2, [](const Rank& rank) {
    Trainer trainer(rank, {});
    ASSERT_THAT(trainer.Start({}), IsOk());
    for (int step = 1; step <= 4; ++step) ASSERT_THAT(trainer.reducer->Wait(), IsOk());
    EXPECT_EQ(trainer.reducer->gradient(0).data, nullptr);
    EXPECT_THAT(trainer.reducer->Ready(0), MatchesStatus(StatusCode::kInvalidArgument, "no gradient 0"));
  });
}

TEST(Reducer, OneGradientWithoutElementsIsWaitedFor) {
  RunThreads(1, [](const Rank& rank) {
    Trainer trainer(rank, {{{0}}});
    ASSERT_THAT(trainer.Start({.timeout = std::chrono::milliseconds(100)}), IsOk());
    ASSERT_THAT(trainer.reducer->Ready(0), IsOk());
    ASSERT_THAT(trainer.reducer->Wait(), IsOk());
    EXPECT_THAT(trainer.reducer->Wait(), MatchesStatus(StatusCode::kDeadlineExceeded, "\"layer0\""));
  });
}

TEST(Reducer, ConvertsWhatIsGivenInAnotherDtype) {
  RunThreads(2, [](const Rank& rank) {
    Trainer trainer(rank, {{{500}, DType::kBF16}, {{300'001}, DType::kF16}, {{3}, DType::kF64}});
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum}), IsOk());
    std::vector<std::vector<float>> floats;
    for (const Parameter& p : trainer.parameters) floats.emplace_back(static_cast<size_t>(p.count()));
    for (int64_t step = 1; step <= 3; ++step) {
      for (size_t p = 0; p < 3; ++p) {
        trainer.Fill(floats[p], p, step);
        ASSERT_THAT(trainer.reducer->Ready(trainer.index[p], floats[p]), IsOk());
      }
      ASSERT_THAT(trainer.reducer->Wait(), IsOk());
      for (size_t p = 0; p < 3; ++p) trainer.ExpectSum(floats[p], p, step, 1);
    }
  });
}

TEST(Reducer, GradientsMayComeFromManyThreads) {
  RunThreads(2, [](const Rank& rank) {
    Trainer trainer(rank, MixedParameters());
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = kSmallBuckets}), IsOk());
    for (int64_t step = 1; step <= 6; ++step) {
      const std::vector<size_t> order = trainer.Shuffled();
      std::vector<std::thread> threads;
      for (size_t t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
          for (size_t i = t; i < order.size(); i += 3) EXPECT_THAT(trainer.Give(order[i], step, i % 2 == 0), IsOk());
        });
      }
      ASSERT_THAT(trainer.reducer->Wait(), IsOk());  // while they are at it
      for (std::thread& thread : threads) thread.join();
      for (size_t i = 0; i < order.size(); ++i) {
        const size_t p = order[i];
        trainer.ExpectSum(i % 2 == 0 ? trainer.own(p) : trainer.shared(p), p, step, 1);
      }
    }
  });
}

// The first bucket's result appears before the program has come to Wait, or has its second gradient.
TEST(Reducer, ReducesWhileTheProgramComputes) {
  support::RunProcesses(2, [](const Rank& rank) {
    constexpr int64_t kCount = 4096;
    const std::vector<fusion::TensorInfo> tensors = {{"layer0", kCount, DType::kF32}, {"layer1", kCount, DType::kF32}};
    const std::vector<int> order = {0, 1};
    Trainer trainer(rank, {{{kCount}}, {{kCount}}});
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .plan = fusion::ToText({tensors, PlanBySize(tensors, order, 1)})}),
                IsOk());
    for (int step = 1; step <= 3; ++step) {
      auto* const values = static_cast<float*>(trainer.shared(0).data);
      std::fill_n(values, kCount, static_cast<float>(rank + step));
      ASSERT_THAT(trainer.reducer->Ready(trainer.index[0]), IsOk());
      // Of the two halves the other rank reduces this one and stores it here.
      const volatile float& others = values[rank == 0 ? kCount - 1 : 0];
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (others != static_cast<float>(2 * step + 1) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
      }
      EXPECT_EQ(others, static_cast<float>(2 * step + 1));
      ASSERT_THAT(trainer.Give(1, step, false), IsOk());
      ASSERT_THAT(trainer.reducer->Wait(), IsOk());
      trainer.ExpectSum(trainer.shared(1), 1, step, 1);
    }
  });
}

TEST(Reducer, AMissingGradientCountsAsZeros) {
  RunThreads(3, [](const Rank& rank) {
    Trainer trainer(rank, {{{1000}}, {{200'003}}, {{5}, DType::kF16}});
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum}), IsOk());
    for (int64_t step = 1; step <= 4; ++step) {
      const auto gave = [&](size_t p) {
        return [p, step](int r) { return (r + static_cast<int>(p) + step) % 3 != 0; };
      };
      for (size_t p = 0; p < 3; ++p) {
        if (gave(p)(rank)) {
          ASSERT_THAT(trainer.Give(p, step, step % 2 == 0), IsOk());
        } else {
          ASSERT_THAT(trainer.reducer->Missing(trainer.index[p]), IsOk());
        }
      }
      ASSERT_THAT(trainer.reducer->Wait(), IsOk());
      for (size_t p = 0; p < 3; ++p) {
        const bool own = step % 2 == 0 && gave(p)(rank);
        trainer.ExpectSum(own ? trainer.own(p) : trainer.shared(p), p, step, 1, gave(p));
      }
    }
  });
}

TEST(Reducer, AddsUpMicroBatches) {
  RunThreads(2, [](const Rank& rank) {
    Trainer trainer(rank, {{{1000}}, {{200'003}}, {{5}, DType::kF64}, {{9}}});
    ASSERT_THAT(trainer.Start({.accumulate = 3}), IsOk());
    for (int64_t step = 0; step < 4; ++step) {
      for (int64_t micro = 1; micro <= 3; ++micro) {
        const int64_t number = step * 3 + micro;
        for (size_t p = 0; p < 3; ++p) ASSERT_THAT(trainer.Give(p, number, p < 2), IsOk());
        if (micro == 2) {
          ASSERT_THAT(trainer.Give(3, number, false), IsOk());
        } else {
          ASSERT_THAT(trainer.reducer->Missing(trainer.index[3]), IsOk());
        }
        const auto summary = trainer.reducer->Wait();
        ASSERT_THAT(summary, IsOk());
        EXPECT_EQ(summary->reduced, micro == 3);
        EXPECT_EQ(summary->calls > 0, micro == 3);
        EXPECT_EQ(summary->step, micro == 3 ? step + 1 : 0);
      }
      for (size_t p = 0; p < 4; ++p) {
        const TensorView result = p < 2 ? trainer.own(p) : trainer.shared(p);
        for (int64_t i = 0; i < result.count; ++i) {
          double sum = 0;
          for (int64_t micro = 1; micro <= 3; ++micro) {
            for (int r = 0; r < 2; ++r) sum += p < 3 || micro == 2 ? support::ValueOf(r, p, i, step * 3 + micro) : 0;
          }
          ASSERT_NEAR(support::Load(result, i), sum / 6, 1e-6);
        }
      }
    }
  });
}

TEST(Reducer, ClipsTheGlobalNorm) {
  RunThreads(2, [](const Rank& rank) {
    Trainer trainer(rank, {{{3}}, {{1}, DType::kF64}});
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .max_norm = 10.0}), IsOk());
    for (const double size : {1.0, 4.0}) {  // the sums: 2, 2, 2 and 2; 8, 8, 8 and 8
      for (size_t p = 0; p < 2; ++p) {
        for (int64_t i = 0; i < trainer.shared(p).count; ++i) support::Store(trainer.shared(p), i, size);
        ASSERT_THAT(trainer.reducer->Ready(trainer.index[p]), IsOk());
      }
      const auto summary = trainer.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      EXPECT_DOUBLE_EQ(*summary->norm, 4 * size);
      for (size_t p = 0; p < 2; ++p) EXPECT_EQ(support::Load(trainer.shared(p), 0), size == 1.0 ? 2 : 5);
    }
  });
}

TEST(Reducer, SkipsStepsThatAreNotFinite) {
  RunThreads(3, [](const Rank& rank) {
    Trainer trainer(rank, {{{1000}}, {{50}, DType::kF16}, {{2}, DType::kF64}});
    ASSERT_THAT(trainer.Start({.skip_non_finite = true}), IsOk());
    const double odd[] = {0, std::nan(""), std::numeric_limits<double>::infinity(), 1e300};
    for (int64_t step = 0; step < 4; ++step) {
      const auto victim = static_cast<size_t>(step % 3);
      for (size_t p = 0; p < 3; ++p) {
        trainer.Fill(trainer.shared(p), p, step);
        const bool fits = step != 3 || p == 2;
        if (rank == 1 && (step == 3 ? p == 2 : p == victim) && fits) support::Store(trainer.shared(p), 1, odd[step]);
        ASSERT_THAT(trainer.reducer->Ready(trainer.index[p]), IsOk());
      }
      const auto summary = trainer.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      EXPECT_EQ(summary->skipped, step == 1 || step == 2) << step;  // 1e300 has a square that is not finite: it is
    }
  });
}

// Of a gradient that travels as float one rank gives halves, where the sum does not fit.
TEST(Reducer, RanksConcludeAlikeWhateverDtypeTheyGive) {
  for (const bool clips : {false, true}) {
    RunThreads(2, [clips](const Rank& rank) {
      Trainer trainer(rank, {{{1}}});
      ReducerOptions options{.op = ReduceOp::kSum, .skip_non_finite = true};
      if (clips) options.max_norm = 100.0;
      ASSERT_THAT(trainer.Start(options), IsOk());
      uint16_t half = 0;
      const bool gives_half = rank.rank == 1;
      const TensorView given = gives_half ? TensorView(&half, 1, DType::kF16) : trainer.shared(0);
      support::Store(given, 0, 40000);
      const int index = trainer.index[0];
      ASSERT_THAT(gives_half ? trainer.reducer->Ready(index, given) : trainer.reducer->Ready(index), IsOk());
      const auto summary = trainer.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      EXPECT_FALSE(summary->skipped);
      EXPECT_DOUBLE_EQ(*summary->norm, 80000);
      if (clips) {
        EXPECT_NEAR(support::Load(given, 0), 100, 0.1);
      }
    });
  }
}

TEST(Reducer, APlanGivenBackGivesTheSameBits) {
  constexpr int kRuns = 20;
  std::string plan, next;
  std::vector<float> first;
  for (int run = 0; run < kRuns; ++run) {
    RunThreads(3, [&](const Rank& rank) {
      Trainer trainer(rank, {{{1001}}, {{200, 701}}, {{77}}});
      ASSERT_THAT(trainer.Start({.bucket_bytes = kSmallBuckets, .plan = plan}), IsOk());
      EXPECT_EQ(trainer.reducer->planned(), run > 0);
      std::vector<float> results;
      for (int64_t step = 1; step <= 3; ++step) {
        for (const size_t p : trainer.Shuffled()) {
          const TensorView view = trainer.shared(p);
          std::mt19937 values(static_cast<uint32_t>(rank * 100 + step * 10) + static_cast<uint32_t>(p));
          std::normal_distribution<double> normal;
          for (int64_t i = 0; i < view.count; ++i) support::Store(view, i, normal(values));
          ASSERT_THAT(trainer.reducer->Ready(trainer.index[p]), IsOk());
        }
        const auto summary = trainer.reducer->Wait();
        ASSERT_THAT(summary, IsOk());
        if (run > 0) {
          EXPECT_EQ(summary->control_messages, 0);
        }
        const auto* values = static_cast<const float*>(trainer.shared(1).data);
        results.insert(results.end(), values, values + trainer.shared(1).count);
      }
      if (rank == 0) {
        if (run == 0) first = results;
        EXPECT_EQ(std::memcmp(results.data(), first.data(), first.size() * sizeof(float)), 0) << run;
        if (run > 0) {
          EXPECT_EQ(trainer.reducer->plan(), plan);
        }
        next = trainer.reducer->plan();
      }
    });
    plan = next;
  }
}

TEST(Reducer, SeveralWorkSideBySideInSeveralRuntimes) {
  RunThreads(2, [](const Rank& rank) {
    Rank other = rank;
    other.name += "-other";
    other.directory /= "other";
    std::filesystem::create_directories(other.directory);
    Trainer one(rank, {{{1000}}, {{10}}}), two(rank, {{{1000}}}), three(other, {{{1000}}});
    ASSERT_THAT(one.Start({.op = ReduceOp::kSum, .bucket_bytes = 1}), IsOk());
    ASSERT_THAT(three.Start({.op = ReduceOp::kSum}), IsOk());
    auto created = GradientReducer::Create(one.runtime->world(), {.op = ReduceOp::kSum});
    ASSERT_THAT(created, IsOk());
    two.reducer = *std::move(created);
    two.index = {two.reducer->Register("layer0", two.parameters[0].shape).value()};
    ASSERT_THAT(two.reducer->Start(), IsOk());
    for (int64_t step = 1; step <= 4; ++step) {
      std::vector<Trainer*> order = {&one, &two, &three};
      if (rank == 1) std::swap(order[0], order[2]);
      for (Trainer* trainer : order) {
        for (size_t p = 0; p < trainer->parameters.size(); ++p) ASSERT_THAT(trainer->Give(p, step, false), IsOk());
      }
      std::vector<float> own = {static_cast<float>(rank.rank)};
      ASSERT_THAT(one.runtime->world().AllReduce(own), IsOk());  // never mixed up with the program's calls
      EXPECT_EQ(own[0], 1);
      for (Trainer* trainer : {&one, &two, &three}) {
        ASSERT_THAT(trainer->reducer->Wait(), IsOk());
        trainer->ExpectSum(trainer->shared(0), 0, step, 1);
      }
    }
    two.reducer.reset();
  });
}

TEST(Reducer, RefusesWhatItCannotDo) {
  RunThreads(1, [](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    const auto create = [&](const ReducerOptions& options) {
      return GradientReducer::Create(runtime->world(), options).status();
    };
    EXPECT_THAT(create({.op = ReduceOp::kMax}), MatchesStatus(StatusCode::kInvalidArgument, "op"));
    EXPECT_THAT(create({.prescale = std::nan("")}), MatchesStatus(StatusCode::kInvalidArgument, "scale"));
    EXPECT_THAT(create({.max_norm = 0.0}), MatchesStatus(StatusCode::kInvalidArgument, "max_norm"));
    EXPECT_THAT(create({.accumulate = 0}), MatchesStatus(StatusCode::kInvalidArgument, "accumulate"));
    EXPECT_THAT(create({.plan = "any", .tune = true}), MatchesStatus(StatusCode::kInvalidArgument, "tune"));
    EXPECT_THAT(create({.bucket_bytes = 1, .tune = true}), MatchesStatus(StatusCode::kInvalidArgument, "tune"));
    EXPECT_THAT(create({.bucket_bytes = 0}), MatchesStatus(StatusCode::kInvalidArgument, "bucket_bytes"));
    EXPECT_THAT(create({.timeout = std::chrono::milliseconds(0)}),
                MatchesStatus(StatusCode::kInvalidArgument, "timeout"));

    auto reducer = GradientReducer::Create(runtime->world()).value();
    const std::vector<int64_t> shape = {2, 3}, negative = {2, -3}, huge = {int64_t{1} << 40, 2};
    ASSERT_THAT(reducer->Register("a", shape), IsOk());
    EXPECT_THAT(reducer->Register("a", shape), MatchesStatus(StatusCode::kInvalidArgument, "\"a\" already"));
    EXPECT_THAT(reducer->Register("b", negative), MatchesStatus(StatusCode::kInvalidArgument, "[2, -3]"));
    EXPECT_THAT(reducer->Register("b", huge), MatchesStatus(StatusCode::kInvalidArgument, "2^40"));
    EXPECT_THAT(reducer->Register("b", shape, DType::kI32), MatchesStatus(StatusCode::kInvalidArgument, "i32"));
    EXPECT_THAT(reducer->Ready(0), MatchesStatus(StatusCode::kFailedPrecondition, "not started"));
    EXPECT_THAT(reducer->Wait(), MatchesStatus(StatusCode::kFailedPrecondition, "not started"));
    EXPECT_EQ(reducer->gradient(0).data, nullptr);
    ASSERT_THAT(reducer->Start(), IsOk());
    EXPECT_THAT(reducer->Start(), MatchesStatus(StatusCode::kFailedPrecondition, "once"));
    EXPECT_THAT(reducer->Register("c", shape), MatchesStatus(StatusCode::kFailedPrecondition, "before Start"));
    std::vector<float> five(5);
    std::vector<int32_t> integers(6);
    EXPECT_THAT(reducer->Ready(0, five), MatchesStatus(StatusCode::kInvalidArgument, "6 floating-point elements"));
    EXPECT_THAT(reducer->Ready(0, integers), MatchesStatus(StatusCode::kInvalidArgument, "i32"));
    EXPECT_THAT(reducer->Ready(-1), MatchesStatus(StatusCode::kInvalidArgument, "no gradient -1"));
    ASSERT_THAT(reducer->Ready(0), IsOk());
    EXPECT_THAT(reducer->Missing(0), MatchesStatus(StatusCode::kFailedPrecondition, "\"a\" was ready"));
    ASSERT_THAT(reducer->Wait(), IsOk());
  });
}

}  // namespace
}  // namespace gyre
