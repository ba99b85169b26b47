// Weights on GPUs, which do what is queued late, that are trained through parameter servers.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/gpu_wait.h"
#include "gmock/gmock.h"
#include "gyre/distributed_optimizer.h"
#include "runtime/served_job.h"
#include "support/forked.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::GpuRank;
using support::IsOk;
using support::MatchesStatus;
using support::ServedJob;

constexpr int64_t kCounts[] = {5, 0, 1, 1000, 2100};
constexpr size_t kParameters = 5;
constexpr int kWorkers = 2;
constexpr int kSteps = 6;
using Weights = std::vector<std::vector<float>>;

float NoiseOf(int rank, size_t p, size_t i, int step) {
  return 0.1f * static_cast<float>((i * 7 + static_cast<size_t>(rank) * 5 + p * 3 + static_cast<size_t>(step)) % 9);
}

// Nobody has this gradient in this step.
bool IsMissing(size_t p, int step) {
  return p == 3 && step == 2;
}

struct Training {
  OptimizerConfig rule{};
  ReducerOptions reducer{};
};

// Which of a worker's weights are on its GPU.
using Placement = std::function<bool(int rank, size_t p)>;

// Weights are on two streams by turns. A gradient is the weights as they are there, and noise: values that come late
// show. It is written where the optimizer has it, or in memory of the program's own, on the stream that the weights are
// not on, and written over at once; the host waits for nothing.
class Worker {
 public:
  Worker(GpuRank& rank, const Placement& on_gpu) : rank_(rank) {
    other_ = *rank_.gpu->CreateStream();
    written_ = *rank_.gpu->CreateEvent();
    for (size_t p = 0; p < kParameters; ++p) {
      host_.emplace_back(static_cast<size_t>(kCounts[p]), static_cast<float>(100 * rank.rank.rank + 1));
      own_.emplace_back(host_.back().size());
      if (on_gpu(rank.rank.rank, p)) {
        there_[p] = Place{rank_.Tensor(DType::kF32, kCounts[p], device(p).stream),
                          rank_.Tensor(DType::kF32, kCounts[p], device(p).stream),
                          rank_.Tensor(DType::kF32, kCounts[p], device(p + 1).stream)};
        Put(there_[p]->weights.view, host_[p]);
      }
    }
  }
  ~Worker() {
    optimizer.reset();
    for (auto& there : there_) there.reset();
    rank_.gpu->DestroyEvent(written_);
    rank_.gpu->DestroyStream(other_);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  absl::Status Start(const Training& training) {
    auto created = DistributedOptimizer::Create(rank_.world(), training.rule, training.reducer);
    if (!created.ok()) return created.status();
    optimizer = *std::move(created);
    for (size_t p = 0; p < kParameters; ++p) {
      const std::vector<int64_t> shape = p == 4 ? std::vector<int64_t>{21, 100} : std::vector<int64_t>{kCounts[p]};
      const auto added =
          there_[p] ? optimizer->Register(absl::StrCat("p", p), Span(there_[p]->weights.view), shape, device(p))
                    : optimizer->Register(absl::StrCat("p", p), host_[p], shape);
      if (!added.ok()) return added.status();
      EXPECT_EQ(*added, static_cast<int>(p));
    }
    return optimizer->Start();
  }

  absl::Status Step(int step) {
    absl::Status status;
    for (size_t p = kParameters; p-- > 0;) {
      status.Update(IsMissing(p, step) ? optimizer->Missing(static_cast<int>(p))
                    : there_[p]        ? GiveThere(p, step)
                                       : GiveHere(p, step));
    }
    const auto summary = optimizer->Step();
    if (!summary.ok()) return summary.status();
    EXPECT_EQ(summary->step, step + 1);
    return status;
  }

  Weights Read() {
    Weights all = host_;
    for (size_t p = 0; p < kParameters; ++p) {
      if (there_[p]) rank_.Get(there_[p]->weights.view, all[p].data());
    }
    rank_.Settle(rank_.stream);
    rank_.Settle(other_);
    return all;
  }

  void Put(const TensorView& to, std::vector<float> values) {
    rank_.Put(to, kept_.emplace_back(std::make_unique<std::vector<float>>(std::move(values)))->data());
  }

  static std::span<float> Span(const TensorView& view) {
    return {static_cast<float*>(view.data), static_cast<size_t>(view.count)};
  }

  std::unique_ptr<DistributedOptimizer> optimizer;

 private:
  struct Place {
    GpuRank::Memory weights, noise, own;
  };

  Device device(size_t p) const { return rank_.on(p % 2 == 0 ? rank_.stream : other_); }
  static bool IsAtHome(size_t p, int step) { return (p + static_cast<size_t>(step)) % 2 == 0; }

  std::vector<float> Noise(size_t p, int step) const {
    std::vector<float> noise(static_cast<size_t>(kCounts[p]));
    for (size_t i = 0; i < noise.size(); ++i) noise[i] = NoiseOf(rank_.rank.rank, p, i, step);
    return noise;
  }

  absl::Status GiveHere(size_t p, int step) {
    const auto index = static_cast<int>(p);
    const std::vector<float> noise = Noise(p, step);
    const std::span<float> to = IsAtHome(p, step) ? optimizer->gradient(index) : std::span(own_[p]);
    for (size_t i = 0; i < noise.size(); ++i) to[i] = host_[p][i] + noise[i];
    if (IsAtHome(p, step)) return optimizer->Ready(index);
    absl::Status given = optimizer->Ready(index, to);
    std::ranges::fill(own_[p], 1e30f);
    return given;
  }

  absl::Status GiveThere(size_t p, int step) {
    const auto index = static_cast<int>(p);
    const Place& place = *there_[p];
    Put(place.noise.view, Noise(p, step));
    const TensorView& own = place.own.view;
    void* const to = IsAtHome(p, step) ? optimizer->gradient(index).data() : own.data;
    void* const stream = IsAtHome(p, step) ? device(p).stream : own.device.stream;
    EXPECT_THAT(rank_.gpu->Record(written_, device(p).stream), IsOk());
    EXPECT_THAT(rank_.gpu->Wait(stream, written_), IsOk());
    const std::vector<const void*> sources = {place.weights.view.data, place.noise.view.data};
    EXPECT_THAT(rank_.gpu->Reduce({}, sources, std::span(&to, 1), kCounts[p], stream), IsOk());
    if (IsAtHome(p, step)) return optimizer->Ready(index);
    absl::Status given = optimizer->Ready(index, Span(own), own.device);
    Put(own, std::vector<float>(static_cast<size_t>(kCounts[p]), 1e30f));
    return given;
  }

  GpuRank& rank_;
  void* other_ = nullptr;
  device::Gpu::Event written_ = nullptr;
  std::optional<Place> there_[kParameters];
  Weights host_, own_;
  std::vector<std::unique_ptr<std::vector<float>>> kept_;
};

// What every worker has in the end.
Weights Train(const Training& training, unsigned seed, const Placement& on_gpu) {
  std::mutex mutex;
  std::vector<Weights> ends(kWorkers);
  const ServedJob job(2);
  job.Run(kWorkers, seed, [&](GpuRank& rank) {
    const int64_t pinned = rank.gpu->pinned();
    const size_t allocated = rank.gpu->allocations();
    {
      Worker worker(rank, on_gpu);
      ASSERT_THAT(worker.Start(training), IsOk());
      for (int step = 0; step < kSteps; ++step) ASSERT_THAT(worker.Step(step), IsOk());
      const Weights end = worker.Read();
      std::lock_guard lock(mutex);
      ends[static_cast<size_t>(rank.rank.rank)] = end;
    }
    EXPECT_EQ(rank.gpu->pinned(), pinned);
    EXPECT_EQ(rank.gpu->allocations(), allocated);
    EXPECT_EQ(rank.gpu->blocked(), 0);
  });
  EXPECT_EQ(ends[0], ends[1]);
  return ends[0];
}

// What the servers make of such gradients, in their order.
Weights Reference(const OptimizerConfig& rule, float scale) {
  Optimizer optimizer = Optimizer::Create(rule, kCounts).value();
  Weights weights;
  for (const int64_t count : kCounts) weights.emplace_back(static_cast<size_t>(count), 1.0f);
  for (int step = 0; step < kSteps; ++step) {
    for (size_t p = 0; p < kParameters; ++p) {
      std::vector<float> mean(weights[p].size());
      for (size_t i = 0; i < mean.size(); ++i) {
        for (int rank = 0; rank < kWorkers && !IsMissing(p, step); ++rank) {
          mean[i] += (weights[p][i] + NoiseOf(rank, p, i, step)) * scale;
        }
        mean[i] *= 1.0f / static_cast<float>(kWorkers);
      }
      EXPECT_THAT(optimizer.Step(static_cast<int>(p), weights[p], mean), IsOk());
    }
  }
  return weights;
}

bool All(int, size_t) {
  return true;
}
bool None(int, size_t) {
  return false;
}
bool OnRankOne(int rank, size_t) {
  return rank == 1;
}
bool ByTurns(int rank, size_t p) {
  return (static_cast<size_t>(rank) + p) % 2 == 0;
}

TEST(GpuServedTest, WeightsAreThoseOfTheHostToTheBit) {
  const std::vector<OptimizerConfig> rules = {Sgd{.learning_rate = 0.25f, .weight_decay = 0.1f},
                                              Momentum{.learning_rate = 0.25f, .momentum = 0.5f}, Adam{}};
  unsigned seed = 0;
  for (const OptimizerConfig& rule : rules) {
    const Weights expected = Reference(rule, 1);
    EXPECT_NE(expected[3][0], 1);
    for (const auto& on_gpu : {All, OnRankOne, ByTurns}) EXPECT_EQ(Train({rule, {}}, ++seed, on_gpu), expected);
  }
}

TEST(GpuServedTest, ScalesAreThoseOfTheHost) {
  const Sgd rule{.learning_rate = 0.25f};
  const ReducerOptions scaled{.prescale = 0.3, .postscale = 0.7};
  EXPECT_EQ(Train({rule, scaled}, 1, ByTurns), Reference(rule, static_cast<float>(0.3 * 0.7)));
  EXPECT_EQ(Train({rule, {.op = ReduceOp::kSum}}, 1, All), Reference(rule, 2));
}

TEST(GpuServedTest, CompressedPushesAreThoseOfTheHost) {
  const Momentum rule{.learning_rate = 0.25f, .momentum = 0.5f};
  for (const Compression& compression : {Compression(Int8{}), Compression(Dgc{.sparsity = 0.9, .momentum = 0.5f})}) {
    const Training training{rule, {.compression = compression}};
    const Weights expected = Train(training, 1, None);
    EXPECT_NE(expected, Reference(rule, 1)) << "not compressed";
    EXPECT_EQ(Train(training, 2, All), expected);
    EXPECT_EQ(Train(training, 3, ByTurns), expected);
  }
}

// One worker's weights "w" on the GPU, by a client that has so long for each call.
struct Alone {
  Alone(GpuRank& rank, const OptimizerConfig& rule, std::chrono::milliseconds timeout,
        const std::optional<Compression>& compression = std::nullopt)
      : weights(rank.Tensor(DType::kF32, kCount, rank.stream)),
        client(ParameterServerClient::Create(rank.world(), rule, {.compression = compression, .timeout = timeout})
                   .value()) {
    rank.Put(weights.view, first.data());
    rank.Settle(rank.stream);
    EXPECT_THAT(client->Register("w", Worker::Span(weights.view), std::vector<int64_t>{40, 50}, rank.device()), IsOk());
  }

  TensorView gradient(const GpuRank& rank) const {
    return {client->gradient(0).data(), kCount, DType::kF32, rank.device()};
  }

  static constexpr int64_t kCount = 2000;
  const std::vector<float> first = std::vector<float>(kCount, 2);
  GpuRank::Memory weights;
  std::unique_ptr<ParameterServerClient> client;
};

std::vector<float> Read(GpuRank& rank, const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.count));
  rank.Get(view, values.data());
  rank.Settle(rank.stream);
  return values;
}

TEST(GpuServedTest, AFrozenGpuIsNamedByTheDeadline) {
  const ServedJob job(1);
  job.Run(1, 1, [](GpuRank& rank) {
    Alone alone(rank, Sgd{.learning_rate = 0.5f}, support::TimeoutOf(true));
    const std::vector<float> ones(Alone::kCount, 1);
    rank.gpu->Stall(true);
    EXPECT_THAT(alone.client->Start(),
                MatchesStatus(StatusCode::kDeadlineExceeded, "GPU 0 of rank 0 had not copied the weights of \"w\""));
    std::vector<float> late(1);
    EXPECT_THAT(alone.client->Register("late", late),
                MatchesStatus(StatusCode::kFailedPrecondition, "Register after Start"));
    rank.gpu->Stall(false);
    ASSERT_THAT(alone.client->Start(), IsOk());
    rank.Put(alone.gradient(rank), ones.data());
    rank.gpu->Stall(true);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(alone.client->Push(),
                MatchesStatus(StatusCode::kDeadlineExceeded, "GPU 0 of rank 0 had not copied the gradient of \"w\""));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    rank.gpu->Stall(false);
    ASSERT_THAT(alone.client->PushPull(), IsOk());
    EXPECT_EQ(alone.client->step(), 1);
    EXPECT_EQ(Read(rank, alone.weights.view), std::vector<float>(Alone::kCount, 1.5f));
    EXPECT_EQ(rank.gpu->blocked(), 0);
  });
}

// The GPU fails while a worker waits for the other: what has come is sent by the next Pull.
TEST(GpuServedTest, APullThatCouldNotSendItsValuesIsMadeAgain) {
  const ServedJob job(1);
  job.Run(2, 3, [](GpuRank& rank) {
    Alone alone(rank, Sgd{.learning_rate = 0.5f}, std::chrono::seconds(20));
    ASSERT_THAT(alone.client->Start(), IsOk());
    const std::vector<float> ones(Alone::kCount, 1);
    rank.Put(alone.gradient(rank), ones.data());
    if (rank.rank.rank == 1) {
      rank.Meet();
      ASSERT_THAT(alone.client->PushPull(), IsOk());
    } else {
      ASSERT_THAT(alone.client->Push(), IsOk());
      std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // by then Pull waits for rank 1
        rank.gpu->Fail(absl::InternalError("fell off the bus"));
        rank.Meet();
      });
      EXPECT_THAT(alone.client->Pull(), MatchesStatus(StatusCode::kInternal, "weights \"w\": "));
      later.join();
      rank.gpu->Fail(absl::OkStatus());
      EXPECT_THAT(alone.client->Push(), MatchesStatus(StatusCode::kFailedPrecondition, "call Pull again"));
      ASSERT_THAT(alone.client->Pull(), IsOk());
      EXPECT_EQ(alone.client->step(), 1);
    }
    EXPECT_EQ(Read(rank, alone.weights.view), std::vector<float>(Alone::kCount, 1.5f));
    rank.Meet();
  });
}

TEST(GpuServedTest, TheEndKeepsWhatAFrozenGpuStillHas) {
  // What is never freed stays within reach of the tests' leak checker.
  static auto* const kept = new std::vector<std::shared_ptr<device::Gpu>>;
  const ServedJob job(1);
  job.Run(1, 1, [](GpuRank& rank) {
    kept->push_back(internal::Gpus::Of(rank.world()).Get(0)->gpu);
    const int64_t pinned = rank.gpu->pinned();
    const std::vector<float> ones(Alone::kCount, 1);
    {
      Alone alone(rank, Sgd{}, support::TimeoutOf(true));
      ASSERT_THAT(alone.client->Start(), IsOk());
      rank.Settle(rank.stream);
      rank.gpu->Stall(true);
      rank.Put(alone.gradient(rank), ones.data());
      EXPECT_THAT(alone.client->Push(), MatchesStatus(StatusCode::kDeadlineExceeded, "GPU 0"));
      const auto begin = std::chrono::steady_clock::now();
      alone.client.reset();
      EXPECT_LT(std::chrono::steady_clock::now() - begin, device::kLongestRest + std::chrono::seconds(8));
      EXPECT_GT(rank.gpu->pinned(), pinned);
      rank.gpu->Stall(false);
      rank.Settle(rank.stream);  // the copy finds its memory
    }
    EXPECT_EQ(rank.gpu->blocked(), 0);
  });
}

TEST(GpuServedTest, WhatADgcRefusesCanBeMended) {
  const ServedJob job(1);
  job.Run(1, 1, [](GpuRank& rank) {
    const Dgc dgc{.sparsity = 0, .momentum = 0, .non_finite = Dgc::NonFinite::kRefuse};
    Alone alone(rank, Sgd{.learning_rate = 0.5f}, support::TimeoutOf(false), Compression(dgc));
    ASSERT_THAT(alone.client->Start(), IsOk());
    std::vector<float> values(Alone::kCount, 1);
    values[7] = std::numeric_limits<float>::quiet_NaN();
    rank.Put(alone.gradient(rank), values.data());
    EXPECT_THAT(alone.client->Push(),
                MatchesStatus(StatusCode::kFailedPrecondition, "1 elements of the gradient are NaN"));
    values[7] = 1;
    rank.Put(alone.gradient(rank), values.data());
    ASSERT_THAT(alone.client->PushPull(), IsOk());
    EXPECT_EQ(Read(rank, alone.weights.view), std::vector<float>(Alone::kCount, 1.5f));
  });
}

TEST(GpuServedTest, AForkedChildNeitherTrainsNorTakesLeave) {
  const ServedJob job(1);
  job.Run(1, 1, [](GpuRank& rank) {
    Alone alone(rank, Sgd{.learning_rate = 0.5f}, support::TimeoutOf(false));
    ASSERT_THAT(alone.client->Start(), IsOk());
    rank.Settle(rank.stream);
    const int status = support::RunForked([&] {
      const auto refused = MatchesStatus(StatusCode::kFailedPrecondition, "was forked from process");
      EXPECT_THAT(alone.client->Push(), refused);
      EXPECT_THAT(alone.client->Pull(), refused);
      EXPECT_THAT(alone.client->Wait(), refused);
      EXPECT_THAT(ParameterServerClient::Create(rank.world(), Sgd{}), refused);
      alone.client.reset();
      alone.weights = {};
      rank.runtime.reset();
    });
    EXPECT_EQ(status, 0);
    const std::vector<float> ones(Alone::kCount, 1);
    rank.Put(alone.gradient(rank), ones.data());
    ASSERT_THAT(alone.client->PushPull(), IsOk());
    EXPECT_EQ(Read(rank, alone.weights.view), std::vector<float>(Alone::kCount, 1.5f));
  });
}

}  // namespace
}  // namespace gyre
