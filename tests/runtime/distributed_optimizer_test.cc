#include "gyre/distributed_optimizer.h"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "gyre/parameter_server.h"
#include "runtime/reducer_fixture.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;
using support::Rank;
using support::RunThreads;

constexpr size_t kCounts[] = {5, 0, 1, 1000};
constexpr size_t kParameters = 4;

struct Replica {
  std::unique_ptr<Runtime> runtime;
  std::vector<std::vector<float>> weights, own;
  std::unique_ptr<DistributedOptimizer> optimizer;
  std::vector<int> index = std::vector<int>(kParameters);

  // Ranks register in orders of their own, with weights of their own.
  absl::Status Start(const Rank& rank, const OptimizerConfig& config, const ReducerOptions& options) {
    runtime = JoinJob(rank);
    auto created = DistributedOptimizer::Create(runtime->world(), config, options);
    if (!created.ok()) return created.status();
    optimizer = *std::move(created);
    for (size_t p = 0; p < kParameters; ++p) {
      weights.emplace_back(kCounts[p], static_cast<float>(100 * rank + 1));
      own.emplace_back(kCounts[p]);
    }
    for (size_t i = 0; i < kParameters; ++i) {
      const size_t p = (i + static_cast<size_t>(rank.rank)) % kParameters;
      const auto registered = optimizer->Register(absl::StrCat("p", p), weights[p]);
      if (!registered.ok()) return registered.status();
      index[p] = *registered;
    }
    return optimizer->Start();
  }

  // What rank `r` says in step `step`.
  static float GradientOf(int r, size_t p, int step) { return static_cast<float>(r + 1) * (p == 3 ? 2.f : 1.f) + step; }

  absl::Status Give(const Rank& rank, size_t p, int step) {
    const bool shared = (p + static_cast<size_t>(step)) % 2 == 0;
    const std::span<float> to = shared ? optimizer->gradient(index[p]) : std::span<float>(own[p]);
    std::ranges::fill(to, GradientOf(rank, p, step));
    return shared ? optimizer->Ready(index[p]) : optimizer->Ready(index[p], to);
  }
};

TEST(DistributedOptimizer, UpdatesAllReplicasAlike) {
  RunThreads(3, [](const Rank& rank) {
    Replica replica;
    ASSERT_THAT(replica.Start(rank, Momentum{.learning_rate = 0.5f, .momentum = 0.5f}, {}), IsOk());
    for (const auto& weights : replica.weights) {
      for (const float weight : weights) ASSERT_EQ(weight, 1.0f);  // rank 0's
    }
    // The same by the rule, from the averages.
    std::vector<float> velocity(kParameters), expected(kParameters, 1.0f);
    for (int step = 1; step <= 5; ++step) {
      for (size_t i = 0; i < kParameters; ++i) {
        ASSERT_THAT(replica.Give(rank, kParameters - 1 - i, step), IsOk());
      }
      ASSERT_THAT(replica.optimizer->Step(), IsOk());
      for (size_t p = 0; p < kParameters; ++p) {
        float average = 0;
        for (int r = 0; r < 3; ++r) average += Replica::GradientOf(r, p, step) / 3;
        velocity[p] = 0.5f * velocity[p] + average;
        expected[p] -= 0.5f * velocity[p];
        for (const float weight : replica.weights[p]) ASSERT_NEAR(weight, expected[p], 1e-4);
      }
    }
  });
}

TEST(DistributedOptimizer, LeavesWeightsAloneInSkippedAndAddedUpSteps) {
  RunThreads(2, [](const Rank& rank) {
    Replica replica;
    ASSERT_THAT(replica.Start(rank, Sgd{.learning_rate = 1.0f}, {.skip_non_finite = true, .accumulate = 2}), IsOk());
    for (const bool spoilt : {false, true}) {
      const std::vector<std::vector<float>> before = replica.weights;
      for (int micro = 0; micro < 2; ++micro) {
        for (size_t p = 0; p < kParameters; ++p) {
          const std::span<float> gradient = replica.optimizer->gradient(replica.index[p]);
          std::ranges::fill(gradient, 1.0f);
          if (spoilt && rank == 1 && p == 0) gradient[3] = std::numeric_limits<float>::infinity();
          ASSERT_THAT(replica.optimizer->Ready(replica.index[p]), IsOk());
        }
        const auto summary = replica.optimizer->Step();
        ASSERT_THAT(summary, IsOk());
        EXPECT_EQ(summary->reduced, micro == 1);
        EXPECT_EQ(summary->skipped, micro == 1 && spoilt);
        if (micro == 0) {
          EXPECT_EQ(replica.weights, before);
        }
      }
      if (spoilt) {
        EXPECT_EQ(replica.weights, before);
      } else {
        EXPECT_EQ(replica.weights[3], std::vector<float>(1000, before[3][0] - 1));
      }
    }
  });
}

TEST(DistributedOptimizer, KeepsItsState) {
  RunThreads(2, [](const Rank& rank) {
    Replica first;
    ASSERT_THAT(first.Start(rank, Adam{}, {}), IsOk());
    const auto step = [&](Replica& replica, int number) {
      for (size_t p = 0; p < kParameters; ++p) ASSERT_THAT(replica.Give(rank, p, number), IsOk());
      ASSERT_THAT(replica.optimizer->Step(), IsOk());
    };
    for (int number = 1; number <= 3; ++number) step(first, number);
    const std::vector<std::byte> state = first.optimizer->Save();
    const auto weights = first.weights;
    ASSERT_THAT(first.optimizer->SetLearningRate(0.25f), IsOk());
    EXPECT_EQ(first.optimizer->learning_rate(), 0.25f);
    step(first, 4);
    const auto after = first.weights;
    for (size_t p = 0; p < kParameters; ++p) std::ranges::copy(weights[p], first.weights[p].begin());
    ASSERT_THAT(first.optimizer->Restore(state), IsOk());
    step(first, 4);
    EXPECT_EQ(first.weights, after);
  });
}

TEST(DistributedOptimizer, RefusesWrongRulesAndNames) {
  RunThreads(1, [](const Rank& rank) {
    Replica replica;
    EXPECT_THAT(replica.Start(rank, Sgd{.learning_rate = -1}, {}),
                MatchesStatus(StatusCode::kInvalidArgument, "learning_rate"));
    std::vector<float> weights(3);
    auto optimizer = DistributedOptimizer::Create(replica.runtime->world(), Sgd{}).value();
    ASSERT_THAT(optimizer->Register("w", weights), IsOk());
    EXPECT_THAT(optimizer->Register("w", weights), MatchesStatus(StatusCode::kInvalidArgument, "\"w\""));
    const std::vector<int64_t> shape = {2};
    const auto extra = optimizer->reducer().Register("extra", shape);
    ASSERT_THAT(extra, IsOk());
    ASSERT_THAT(optimizer->Start(), IsOk());
    EXPECT_TRUE(optimizer->gradient(2).empty());
    optimizer->gradient(*extra)[1] = 7;
    ASSERT_THAT(optimizer->Ready(*extra), IsOk());
    ASSERT_THAT(optimizer->Missing(0), IsOk());
    ASSERT_THAT(optimizer->Step(), IsOk());
    EXPECT_EQ(optimizer->gradient(*extra)[1], 7);
  });
}

TEST(DistributedOptimizer, ByServersIsOneARuntimeAndAwaitsNothingBeforeItsStart) {
  ASSERT_EQ(setenv("GYRE_STRATEGY", "ps,servers=127.0.0.1:1", 1), 0);
  RunThreads(1, [](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    EXPECT_THAT(ParameterServerClient::Create(runtime->world(), Sgd{}, {.local_steps = 256}),
                MatchesStatus(StatusCode::kInvalidArgument, "255 at most"));
    const auto expect = [&](const OptimizerConfig& rule, const Compression& compression, const char* text) {
      EXPECT_THAT(ParameterServerClient::Create(runtime->world(), rule, {.compression = compression}),
                  MatchesStatus(StatusCode::kInvalidArgument, text));
    };
    expect(Sgd{}, PowerSgd{}, "powersgd");
    expect(Sgd{}, TopK{.sparsity = 1}, "sparsity");
    expect(Adam{}, Dgc{}, "Adam");
    expect(Sgd{}, Dgc{}, "two momentums");
    expect(Momentum{.weight_decay = 0.1f}, Dgc{}, "weight decay");
    std::vector<float> weights(3), gradient(3);
    auto first = DistributedOptimizer::Create(runtime->world(), Sgd{}).value();
    ASSERT_THAT(first->Register("w", weights), IsOk());
    for (const int index : {-1, 1}) {
      EXPECT_THAT(first->Ready(index, gradient), MatchesStatus(StatusCode::kInvalidArgument, "no parameter"));
      EXPECT_THAT(first->Missing(index), MatchesStatus(StatusCode::kInvalidArgument, "no parameter"));
    }
    EXPECT_THAT(first->Ready(0), MatchesStatus(StatusCode::kFailedPrecondition, "before Start"));
    EXPECT_THAT(first->Ready(0, gradient), MatchesStatus(StatusCode::kFailedPrecondition, "before Start"));
    EXPECT_THAT(first->Missing(0), MatchesStatus(StatusCode::kFailedPrecondition, "before Start"));
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(DistributedOptimizer::Create(runtime->world(), Sgd{}),
                  MatchesStatus(StatusCode::kFailedPrecondition, "one model a job"));
      first.reset();  // does not help
    }
  });
  unsetenv("GYRE_STRATEGY");
}

}  // namespace
}  // namespace gyre
