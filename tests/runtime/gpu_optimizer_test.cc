// DistributedOptimizer with weights on GPUs, which do what is queued late: nothing here waits for them but the
// comparison at the end.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gyre/distributed_optimizer.h"
#include "runtime/gpu_fixture.h"
#include "support/forked.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::GpuRank;
using support::HostSizes;
using support::IsOk;
using support::MatchesStatus;
using support::RunOnGpus;

constexpr int64_t kCounts[] = {5, 0, 1, 1000, 2100};
constexpr size_t kParameters = 5;

// What rank `rank` says in step `step`: averages over two ranks are exact.
std::vector<float> GradientOf(int rank, size_t p, int step) {
  std::vector<float> values(static_cast<size_t>(kCounts[p]));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((rank + 1) * static_cast<int>(i % 7) + step - static_cast<int>(p));
  }
  return values;
}

std::vector<float> AverageOf(int ranks, size_t p, int step) {
  std::vector<float> sum(static_cast<size_t>(kCounts[p]));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> values = GradientOf(rank, p, step);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  for (float& value : sum) value /= static_cast<float>(ranks);
  return sum;
}

// A program with two streams: weights are on the one or the other, and gradients that are given in memory of its own,
// on the one that the weights are not on.
class Replica {
 public:
  explicit Replica(GpuRank& rank) : rank_(rank) { other_ = *rank_.gpu->CreateStream(); }
  ~Replica() {
    optimizer.reset();
    weights_.clear();
    own_.clear();
    rank_.gpu->DestroyStream(other_);
  }
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  absl::Status Start(const OptimizerConfig& config, const ReducerOptions& options = {}) {
    auto created = DistributedOptimizer::Create(rank_.world(), config, options);
    if (!created.ok()) return created.status();
    optimizer = *std::move(created);
    for (size_t p = 0; p < kParameters; ++p) {
      weights_.push_back(rank_.Tensor(DType::kF32, kCounts[p], device(p).stream));
      own_.push_back(rank_.Tensor(DType::kF32, kCounts[p], device(p + 1).stream));
      Put(weights_[p].view, std::vector<float>(static_cast<size_t>(kCounts[p]), 100.0f * rank_.rank + 1));
    }
    const auto shift = static_cast<size_t>(rank_.rank.rank);
    for (size_t i = 0; i < kParameters; ++i) {  // ranks register in orders of their own
      const size_t p = (i + shift) % kParameters;
      const std::vector<int64_t> shape = {kCounts[p]};
      const auto registered = optimizer->Register(absl::StrCat("p", p), Span(weights_[p].view), shape, device(p));
      if (!registered.ok()) return registered.status();
      index[p] = *registered;
    }
    return optimizer->Start();
  }

  Device device(size_t p) const { return rank_.on(p % 2 == 0 ? rank_.stream : other_); }
  const TensorView& weights(size_t p) const { return weights_[p].view; }
  static std::span<float> Span(const TensorView& view) {
    return {static_cast<float*>(view.data), static_cast<size_t>(view.count)};
  }
  TensorView home(size_t p) const {
    const std::span<float> gradient = optimizer->gradient(index[p]);
    return {gradient.data(), std::ssize(gradient), DType::kF32, device(p)};
  }

  void Put(const TensorView& to, std::vector<float> values) {
    rank_.Put(to, kept_.emplace_back(std::make_unique<std::vector<float>>(std::move(values)))->data());
  }

  absl::Status Give(size_t p, int step) {
    const bool at_home = (p + static_cast<size_t>(step)) % 2 == 0;
    const TensorView to = at_home ? home(p) : own_[p].view;
    Put(to, GradientOf(rank_.rank, p, step));
    return at_home ? optimizer->Ready(index[p]) : optimizer->Ready(index[p], Span(to), to.device);
  }
  absl::Status GiveAll(int step) {
    absl::Status status;
    for (size_t p = kParameters; p-- > 0;) status.Update(Give(p, step));
    return status;
  }

  // The next pass writes over what was given, at once.
  void Spoil() {
    for (const auto& own : own_) Put(own.view, std::vector<float>(static_cast<size_t>(own.view.count), 1e30f));
  }

  std::vector<std::vector<float>> Weights() {
    std::vector<std::vector<float>> all;
    for (size_t p = 0; p < kParameters; ++p) {
      all.emplace_back(static_cast<size_t>(kCounts[p]));
      rank_.Get(weights_[p].view, all.back().data());
    }
    rank_.Settle(rank_.stream);
    rank_.Settle(other_);
    return all;
  }

  std::unique_ptr<DistributedOptimizer> optimizer;
  std::vector<int> index = std::vector<int>(kParameters);

 private:
  GpuRank& rank_;
  void* other_ = nullptr;
  std::vector<GpuRank::Memory> weights_, own_;
  std::vector<std::unique_ptr<std::vector<float>>> kept_;
};

// The same rule on the host, from the averages.
struct Reference {
  explicit Reference(const OptimizerConfig& config) : optimizer(Optimizer::Create(config, kCounts).value()) {
    for (const int64_t count : kCounts) weights.emplace_back(static_cast<size_t>(count), 1.0f);  // rank 0's
  }
  void Step(int ranks, int step) {
    for (size_t p = 0; p < kParameters; ++p) {
      EXPECT_THAT(optimizer.Step(static_cast<int>(p), weights[p], AverageOf(ranks, p, step)), IsOk());
    }
  }

  Optimizer optimizer;
  std::vector<std::vector<float>> weights;
};

TEST(GpuOptimizerTest, WeightsAreThoseOfTheHostToTheBit) {
  const std::vector<OptimizerConfig> rules = {Sgd{.learning_rate = 0.5f, .weight_decay = 0.1f},
                                              Momentum{.learning_rate = 0.5f, .momentum = 0.5f},
                                              Momentum{.momentum = 0.5f, .nesterov = true, .weight_decay = 0.1f},
                                              Adam{}, Adagrad{.initial_accumulator = 0.25f}};
  for (unsigned seed = 0; seed < rules.size(); ++seed) {
    const OptimizerConfig& rule = rules[seed];
    for (const HostSizes& hosts : {HostSizes{1}, HostSizes{2}, HostSizes{1, 1}}) {
      RunOnGpus(hosts, seed, [&](GpuRank& rank) {
        Replica replica(rank);
        ASSERT_THAT(replica.Start(rule, {.bucket_bytes = 4096}), IsOk());
        Reference reference(rule);
        EXPECT_EQ(replica.Weights(), reference.weights);
        for (int step = 1; step <= 5; ++step) {
          ASSERT_THAT(replica.GiveAll(step), IsOk());
          for (size_t i = 0; step % 2 == 0 && i < 3; ++i) {  // some before Step
            const size_t p = (i + static_cast<size_t>(step)) % kParameters;
            for (const bool first : {true, false}) {
              const auto updated = replica.optimizer->StepOne(replica.index[p]);
              ASSERT_THAT(updated, IsOk());
              EXPECT_EQ(*updated, first);
            }
          }
          ASSERT_THAT(replica.optimizer->Step(), IsOk());
          replica.Spoil();
          reference.Step(rank.rank.size, step);
        }
        EXPECT_EQ(replica.Weights(), reference.weights);
        EXPECT_EQ(replica.optimizer->step(), 5);
      });
    }
  }
}

TEST(GpuOptimizerTest, KeepsItsState) {
  RunOnGpus({2}, 3, [](GpuRank& rank) {
    Replica replica(rank);
    ASSERT_THAT(replica.Start(Adam{}), IsOk());
    for (int step = 1; step <= 3; ++step) {
      ASSERT_THAT(replica.GiveAll(step), IsOk());
      ASSERT_THAT(replica.optimizer->Step(), IsOk());
    }
    const std::vector<std::byte> state = replica.optimizer->Save();
    ASSERT_FALSE(state.empty());
    const std::vector<std::vector<float>> before = replica.Weights();
    ASSERT_THAT(replica.optimizer->SetLearningRate(0.25f), IsOk());
    EXPECT_EQ(replica.optimizer->learning_rate(), 0.25f);
    ASSERT_THAT(replica.GiveAll(4), IsOk());
    ASSERT_THAT(replica.optimizer->Step(), IsOk());
    const std::vector<std::vector<float>> after = replica.Weights();
    EXPECT_NE(after, before);
    for (size_t p = 0; p < kParameters; ++p) replica.Put(replica.weights(p), before[p]);
    ASSERT_THAT(replica.optimizer->Restore(state), IsOk());
    ASSERT_THAT(replica.GiveAll(4), IsOk());
    ASSERT_THAT(replica.optimizer->Step(), IsOk());
    EXPECT_EQ(replica.Weights(), after);
    EXPECT_THAT(replica.optimizer->Restore(std::span(state).first(30)), MatchesStatus(StatusCode::kDataLoss, ""));
    // Where the GPU fails, there is nothing to be saved.
    rank.gpu->Fail(absl::InternalError("fell off the bus"));
    EXPECT_TRUE(replica.optimizer->Save().empty());
    rank.gpu->Fail(absl::OkStatus());
    ASSERT_THAT(rank.world().Barrier(), IsOk());
  });
}

TEST(GpuOptimizerTest, AForkedChildMayDestroyIt) {
  RunOnGpus({1}, 3, [](GpuRank& rank) {
    Replica replica(rank);
    ASSERT_THAT(replica.Start(Adam{}), IsOk());
    ASSERT_THAT(replica.GiveAll(1), IsOk());
    const int status = support::RunForked([&] {
      EXPECT_THAT(replica.optimizer->Step(), MatchesStatus(StatusCode::kFailedPrecondition, "was forked from process"));
      replica.optimizer.reset();
      rank.runtime.reset();
    });
    EXPECT_EQ(status, 0);
    EXPECT_THAT(replica.optimizer->Step(), IsOk());
  });
}

TEST(GpuOptimizerTest, LeavesWeightsAloneInSkippedAndAddedUpSteps) {
  RunOnGpus({2}, 4, [](GpuRank& rank) {
    Replica replica(rank);
    ASSERT_THAT(replica.Start(Sgd{.learning_rate = 1.0f}, {.skip_non_finite = true, .accumulate = 2}), IsOk());
    for (const bool spoilt : {false, true, false}) {
      const std::vector<std::vector<float>> before = replica.Weights();
      for (int micro = 0; micro < 2; ++micro) {
        for (size_t p = 0; p < kParameters; ++p) {
          std::vector<float> ones(static_cast<size_t>(kCounts[p]), 1.0f);
          if (spoilt && rank.rank == 1 && p == 0) ones[3] = std::numeric_limits<float>::infinity();
          replica.Put(replica.home(p), std::move(ones));
          ASSERT_THAT(replica.optimizer->Ready(replica.index[p]), IsOk());
        }
        const auto one = replica.optimizer->StepOne(replica.index[2]);
        ASSERT_THAT(one, IsOk());
        EXPECT_EQ(*one, micro == 1 && !spoilt);
        const auto summary = replica.optimizer->Step();
        ASSERT_THAT(summary, IsOk());
        EXPECT_EQ(summary->skipped, micro == 1 && spoilt);
      }
      const std::vector<std::vector<float>> after = replica.Weights();
      for (size_t p = 0; p < kParameters; ++p) {
        if (kCounts[p] == 0) continue;
        EXPECT_EQ(after[p], std::vector<float>(after[p].size(), before[p][0] - (spoilt ? 0 : 1)));
      }
    }
  });
}

// With a Dgc: a matrix whose results are velocities, a vector that goes along, and a table whose gradient is rows. The
// same program trains on the host and on the GPU.
class CompressedTwins {
 public:
  static constexpr int64_t kRows = 40, kWidth = 3;

  explicit CompressedTwins(GpuRank& rank) : rank_(rank) {
    for (const auto& shape : kShapes) {
      const int64_t count = shape[0] * (shape.size() > 1 ? shape[1] : 1);
      there_.push_back(rank.Tensor(DType::kF32, count, rank.stream));
      here_.emplace_back(static_cast<size_t>(count), 1.0f);
      rank.Put(there_.back().view, here_.back().data());
    }
    rank.Settle(rank.stream);
  }

  absl::Status Start(const OptimizerConfig& rule, const Dgc& dgc) {
    for (auto* const optimizer : {&host, &gpu}) {
      auto made = DistributedOptimizer::Create(
          rank_.world(), rule, ReducerOptions{.compression = Compression(dgc), .always_compress = true});
      if (!made.ok()) return made.status();
      *optimizer = *std::move(made);
      const Device device = optimizer == &gpu ? rank_.device() : Device();
      const auto weights = [&](size_t p) {
        return device.on_gpu() ? Replica::Span(there_[p].view) : std::span(here_[p]);
      };
      for (const size_t p : {0, 1}) {
        const auto added = (*optimizer)->Register(p == 0 ? "matrix" : "vector", weights(p), kShapes[p], device);
        if (!added.ok()) return added.status();
      }
      const auto added = (*optimizer)->RegisterRows("table", weights(2), kRows, device);
      if (!added.ok()) return added.status();
      if (absl::Status started = (*optimizer)->Start(); !started.ok()) return started;
    }
    return absl::OkStatus();
  }

  absl::Status Step(int step) {
    absl::Status status;
    for (int p = 0; p < 2; ++p) {
      const std::span<float> home = host->gradient(p), away = gpu->gradient(p);
      std::ranges::generate(home, [&, i = 0]() mutable { return ValueOf(p, i++, step); });
      rank_.Put(TensorView(away.data(), std::ssize(away), DType::kF32, rank_.device()), home.data());
      rank_.Settle(rank_.stream);
      status.Update(host->Ready(p));
      status.Update(gpu->Ready(p));
    }
    const std::vector<int64_t> rows = {step % 7, 11 + rank_.rank, 3};
    std::vector<float> values(rows.size() * kWidth);
    std::ranges::generate(values, [&, i = 0]() mutable { return ValueOf(2, i++, step); });
    const auto given = rank_.Tensor(DType::kF32, std::ssize(values), rank_.stream);
    rank_.Put(given.view, values.data());
    status.Update(host->ReadyRows(2, rows, values));
    status.Update(gpu->ReadyRows(2, rows, given.view));
    status.Update(host->Step().status());
    status.Update(gpu->Step().status());
    return status;
  }

  void Compare() {
    for (size_t p = 0; p < here_.size(); ++p) {
      std::vector<float> got(here_[p].size());
      rank_.Get(there_[p].view, got.data());
      rank_.Settle(rank_.stream);
      EXPECT_EQ(got, here_[p]) << "parameter " << p;
    }
    EXPECT_EQ(gpu->Save(), host->Save());
  }

  std::unique_ptr<DistributedOptimizer> host, gpu;

 private:
  static inline const std::vector<std::vector<int64_t>> kShapes = {{41, 53}, {1000}, {kRows, kWidth}};

  float ValueOf(int p, int i, int step) const {
    return static_cast<float>(std::sin(0.1 * i + 1.7 * step + 3.1 * rank_.rank + 0.3 * p));
  }

  GpuRank& rank_;
  std::vector<GpuRank::Memory> there_;
  std::vector<std::vector<float>> here_;
};

TEST(GpuOptimizerTest, VelocitiesAndRowsUpdateWeightsAsOnTheHost) {
  struct Case {
    OptimizerConfig rule;
    Dgc dgc;
  };
  const std::vector<Case> cases = {
      {Momentum{.learning_rate = 0.5f, .momentum = 0.5f}, Dgc{.sparsity = 0.9, .momentum = 0.5f}},
      {Momentum{.momentum = 0.5f, .nesterov = true, .weight_decay = 0.1f},
       Dgc{.sparsity = 0.9, .momentum = 0.5f, .nesterov = true}},
      {Sgd{.learning_rate = 0.5f, .weight_decay = 0.1f}, Dgc{.sparsity = 0.9, .momentum = 0}}};
  for (unsigned seed = 0; seed < cases.size(); ++seed) {
    for (const HostSizes& hosts : {HostSizes{2}, HostSizes{1, 1}}) {
      RunOnGpus(hosts, seed, [&](GpuRank& rank) {
        CompressedTwins twins(rank);
        ASSERT_THAT(twins.Start(cases[seed].rule, cases[seed].dgc), IsOk());
        EXPECT_TRUE(twins.gpu->reducer().carries_momentum(0));
        for (const int beside : {1, 2}) EXPECT_FALSE(twins.gpu->reducer().carries_momentum(beside));
        for (int step = 1; step <= 5; ++step) {
          ASSERT_THAT(twins.Step(step), IsOk());
          twins.Compare();
        }
        ASSERT_THAT(rank.world().Barrier(), IsOk());
      });
    }
  }
}

TEST(GpuOptimizerTest, HostAndGpuAreNotMixed) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    auto tensor = rank.Tensor(DType::kF32, 10, rank.stream);
    std::vector<float> host(10);
    const std::span<float> there = Replica::Span(tensor.view);
    const std::vector<int64_t> shape = {10};
    auto optimizer = DistributedOptimizer::Create(rank.world(), Sgd{}).value();
    ASSERT_THAT(optimizer->Register("a", there, shape, rank.device()), IsOk());
    EXPECT_THAT(optimizer->Register("b", host), MatchesStatus(StatusCode::kInvalidArgument, "on the host"));
    ASSERT_THAT(optimizer->Start(), IsOk());
    EXPECT_THAT(optimizer->Ready(0, host), MatchesStatus(StatusCode::kInvalidArgument, "of the host"));

    auto mixed = DistributedOptimizer::Create(rank.world(), Sgd{}).value();
    const bool on_gpu = rank.rank == 1;
    ASSERT_THAT(mixed->Register("a", on_gpu ? there : std::span(host), shape, on_gpu ? rank.device() : Device()),
                IsOk());
    EXPECT_THAT(mixed->Start(), MatchesStatus(StatusCode::kInvalidArgument, "on a GPU"));
  });
}

}  // namespace
}  // namespace gyre
