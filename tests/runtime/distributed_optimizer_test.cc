#include "gyre/distributed_optimizer.h"

#include <cmath>
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

// One weight after the other, some of them before Step and some by it: as Step does it.
TEST(DistributedOptimizer, UpdatesOneByOne) {
  std::vector<std::vector<float>> expected;  // by step: all weights
  for (const bool one_by_one : {false, true}) {
    RunThreads(2, [&](const Rank& rank) {
      Replica replica;
      ASSERT_THAT(replica.Start(rank, Adam{.learning_rate = 0.5f}, {}), IsOk());
      EXPECT_THAT(replica.optimizer->StepOne(4), MatchesStatus(StatusCode::kInvalidArgument, "no gradient 4"));
      for (int step = 1; step <= 5; ++step) {
        for (size_t p = 0; p < kParameters; ++p) ASSERT_THAT(replica.Give(rank, p, step), IsOk());
        const std::vector<std::vector<float>> before = replica.weights;
        for (size_t i = 0; one_by_one && i < kParameters; ++i) {
          const size_t p = (i + static_cast<size_t>(step)) % kParameters;
          if (i == 2) continue;
          for (const bool first : {true, false}) {
            const auto updated = replica.optimizer->StepOne(replica.index[p]);
            ASSERT_THAT(updated, IsOk());
            EXPECT_EQ(*updated, first);
          }
          EXPECT_EQ(replica.weights[p] == before[p], kCounts[p] == 0);
        }
        ASSERT_THAT(replica.optimizer->Step(), IsOk());
        std::vector<float> all;
        for (const auto& weights : replica.weights) all.insert(all.end(), weights.begin(), weights.end());
        if (one_by_one) {
          EXPECT_EQ(all, expected[static_cast<size_t>(step) - 1]);
        } else if (rank == 0) {
          expected.push_back(all);
        }
      }
    });
  }
}

// Weights whose gradients are rows, and those beside them.
TEST(DistributedOptimizer, UpdatesRowsOneByOne) {
  RunThreads(2, [](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    std::vector<float> dense(30, 1), table(20, 1);
    auto optimizer = DistributedOptimizer::Create(runtime->world(), Sgd{.learning_rate = 1}).value();
    const int of_dense = optimizer->Register("dense", dense).value();
    const int of_table = optimizer->RegisterRows("table", table, 10).value();
    ASSERT_THAT(optimizer->Start(), IsOk());
    for (int step = 1; step <= 3; ++step) {
      std::ranges::fill(optimizer->gradient(of_dense), 1.0f);
      ASSERT_THAT(optimizer->Ready(of_dense), IsOk());
      const std::vector<int64_t> rows = {7};
      const std::vector<float> values = {2, 4};
      ASSERT_THAT(optimizer->ReadyRows(of_table, rows, values), IsOk());
      for (const bool first : {true, false}) {
        const auto updated = optimizer->StepOne(of_table);
        ASSERT_THAT(updated, IsOk());
        EXPECT_EQ(*updated, first);
      }
      std::vector<float> expected(20, 1);
      expected[14] = static_cast<float>(1 - 2 * step);
      expected[15] = static_cast<float>(1 - 4 * step);
      EXPECT_EQ(table, expected);
      EXPECT_EQ(dense, std::vector<float>(30, static_cast<float>(2 - step)));
      ASSERT_THAT(optimizer->Step(), IsOk());
      EXPECT_EQ(table, expected);
      EXPECT_EQ(dense, std::vector<float>(30, static_cast<float>(1 - step)));
    }
  });
}

TEST(DistributedOptimizer, LeavesWeightsAloneInSkippedAndAddedUpSteps) {
  RunThreads(2, [](const Rank& rank) {
    Replica replica;
    ASSERT_THAT(replica.Start(rank, Sgd{.learning_rate = 1.0f}, {.skip_non_finite = true, .accumulate = 2}), IsOk());
    for (const bool spoilt : {false, true, false}) {
      const std::vector<std::vector<float>> before = replica.weights;
      for (int micro = 0; micro < 2; ++micro) {
        for (size_t p = 0; p < kParameters; ++p) {
          const std::span<float> gradient = replica.optimizer->gradient(replica.index[p]);
          std::ranges::fill(gradient, 1.0f);
          if (spoilt && rank == 1 && p == 0) gradient[3] = std::numeric_limits<float>::infinity();
          ASSERT_THAT(replica.optimizer->Ready(replica.index[p]), IsOk());
        }
        const auto one = replica.optimizer->StepOne(replica.index[2]);
        ASSERT_THAT(one, IsOk());
        EXPECT_EQ(*one, micro == 1 && !spoilt);
        EXPECT_EQ(replica.weights[2][0], before[2][0] - (*one ? 1 : 0));
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
        EXPECT_EQ(replica.weights[2][0], before[2][0] - 1) << "once";
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
    EXPECT_THAT(optimizer->StepOne(*extra), MatchesStatus(StatusCode::kFailedPrecondition, "no weights"))
        << "though it was not given";
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
    EXPECT_THAT(first->StepOne(0), MatchesStatus(StatusCode::kFailedPrecondition, "call Step"));
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(DistributedOptimizer::Create(runtime->world(), Sgd{}),
                  MatchesStatus(StatusCode::kFailedPrecondition, "one model a job"));
      first.reset();  // does not help
    }
  });
  unsetenv("GYRE_STRATEGY");
}

TEST(ParameterServerClient, TablesAreCheckedWhereTheyAreNamed) {
  ASSERT_EQ(setenv("GYRE_STRATEGY", "ps,servers=127.0.0.1:1", 1), 0);
  RunThreads(1, [](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    auto client = ParameterServerClient::Create(runtime->world(), Sgd{}).value();
    std::vector<float> weights(3);
    ASSERT_THAT(client->Register("w", weights), IsOk());
    EXPECT_EQ(client->RegisterTable("words", int64_t{1} << 40, 3, UniformRows{0.1f, 5}).value(), 0);
    EXPECT_EQ(client->RegisterTable("users", 0, 1).value(), 1);
    for (const char* name : {"w", "words"}) {
      EXPECT_THAT(client->RegisterTable(name, 2, 2), MatchesStatus(StatusCode::kInvalidArgument, "there twice"));
      EXPECT_THAT(client->Register(name, weights), MatchesStatus(StatusCode::kInvalidArgument, "there twice"));
    }
    EXPECT_THAT(client->RegisterTable("x", -1, 1), MatchesStatus(StatusCode::kInvalidArgument, "table x has -1 rows"));
    EXPECT_THAT(client->RegisterTable("x", 1, 1, ConstantRows{NAN}),
                MatchesStatus(StatusCode::kInvalidArgument, "table x"));
    const int64_t id = 2;
    EXPECT_THAT(client->PullRows(0, std::span(&id, 1), weights),
                MatchesStatus(StatusCode::kFailedPrecondition, "Start"));
    EXPECT_THAT(client->PushRows(0, std::span(&id, 1), weights),
                MatchesStatus(StatusCode::kFailedPrecondition, "Start"));
  });
  unsetenv("GYRE_STRATEGY");
}

}  // namespace
}  // namespace gyre
