// Processes that share one GPU, where there is one: IPC, on one host and within several, training and operations by
// name, end to end; and one process by itself, whose steps go by graphs, or whose weights a parameter server has.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/gpu_under_test.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "net/endpoint.h"
#include "ps/serving.h"
#include "support/fill.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre {
namespace {

using support::HostSizes;
using support::IsOk;

constexpr Device kGpu{.gpu = 0};

void ExpectSumOfProcesses(Communicator& world, device::Gpu& gpu, Runtime& runtime, int64_t count, uint64_t seed = 5) {
  std::vector<float> values(static_cast<size_t>(count));
  support::FillExact(values, seed, world.rank());
  const auto buffer = runtime.Allocate(count * 4, kGpu);
  ASSERT_THAT(buffer, IsOk());
  const TensorView tensor(buffer->data(), count, DType::kF32, kGpu);
  ASSERT_THAT(gpu.Copy(tensor.data, values.data(), tensor.bytes(), nullptr), IsOk());
  ASSERT_THAT(world.AllReduce(tensor), IsOk());
  ASSERT_THAT(gpu.Copy(values.data(), tensor.data, tensor.bytes(), nullptr), IsOk());
  ASSERT_THAT(gpu.Synchronize(nullptr), IsOk());
  for (int64_t i = 0; i < count; ++i) {
    double expected = 0;
    for (int r = 0; r < world.size(); ++r) expected += support::ExactValue(DType::kF32, seed, r, i);
    ASSERT_EQ(values[static_cast<size_t>(i)], expected) << "element " << i << " of " << count;
  }
}

// Of 64 MiB.
double SecondsOfAllReduce(Communicator& world, device::Gpu& gpu, Runtime& runtime) {
  constexpr int64_t kCount = 16 << 20;
  constexpr int kRounds = 20;
  const auto buffer = runtime.Allocate(kCount * 4, kGpu);
  EXPECT_THAT(buffer, IsOk());
  const TensorView tensor(buffer->data(), kCount, DType::kF32, kGpu);
  EXPECT_THAT(world.AllReduce(tensor), IsOk());
  EXPECT_THAT(gpu.Synchronize(nullptr), IsOk());
  EXPECT_THAT(world.Barrier(), IsOk());
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) EXPECT_THAT(world.AllReduce(tensor), IsOk());
  EXPECT_THAT(gpu.Synchronize(nullptr), IsOk());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / kRounds;
}

// A body of ranks that are processes and share GPU 0; skipped where there is none.
void RunOnCuda(const HostSizes& hosts, const std::function<void(Runtime&, device::Gpu&)>& body) {
  const int size = std::accumulate(hosts.begin(), hosts.end(), 0);
  support::RunProcesses(size, [&](const support::Rank& rank) {
    const auto gpu = device::OpenGpuUnderTest("cuda");
    if (absl::IsUnavailable(gpu.status())) GTEST_SKIP() << gpu.status().message();
    ASSERT_THAT(gpu, IsOk());
    const auto runtime = support::JoinJob(rank, support::JobOptions(rank, hosts));
    ASSERT_NE(runtime, nullptr);
    body(*runtime, **gpu);
  });
}

void SumUpOn(const HostSizes& hosts) {
  RunOnCuda(hosts, [&](Runtime& runtime, device::Gpu& gpu) {
    Communicator& world = runtime.world();
    for (const int64_t count : {0, 1, 1001, 12'345'678}) ExpectSumOfProcesses(world, gpu, runtime, count);
    const double seconds = SecondsOfAllReduce(world, gpu, runtime);
    if (world.rank() != 0) return;
    std::printf("64 MiB, %d processes on one GPU, %zu hosts: %.3f ms\n", world.size(), hosts.size(), seconds * 1e3);
  });
}

TEST(ProcessesOnCuda, TwoSumUpByIpc) {
  SumUpOn({2});
}

TEST(ProcessesOnCuda, FourSumUpByIpc) {
  SumUpOn({4});
}

TEST(ProcessesOnCuda, TwoHalvesSumUpByIpcBesideAll) {
  RunOnCuda({4}, [](Runtime& runtime, device::Gpu& gpu) {
    Communicator& world = runtime.world();
    const int half = world.rank() % 2;
    const auto ranks = world.Split(std::array{half, half + 2});
    ASSERT_THAT(ranks, IsOk());
    ASSERT_EQ((*ranks)->size(), 2);
    for (const int64_t count : {1, 1001, 123'456}) {
      ExpectSumOfProcesses(**ranks, gpu, runtime, count, static_cast<uint64_t>(half) + 1);
      ExpectSumOfProcesses(world, gpu, runtime, count);
    }
  });
}

// Hosts that are this machine told that it is several, and talk by TCP over the loopback.
TEST(ProcessesOnCuda, TwoAndTwoSumUpHierarchically) {
  SumUpOn({2, 2});
}

// The weights of a program that trains on a GPU, or on the host: a matrix, a vector, and a table of which each step
// brings some rows.
class Training {
 public:
  static constexpr int64_t kRows = 30, kWidth = 8, kGiven = 3;
  static inline const std::vector<std::vector<int64_t>> kShapes = {{40, 50}, {17}, {kRows, kWidth}};
  static constexpr size_t kTable = 2;

  // `gpu`: null on the host. `parameters`: so many of them.
  Training(Runtime& runtime, device::Gpu* gpu, size_t parameters = kShapes.size())
      : rank_(runtime.world().rank()), gpu_(gpu), device_(gpu == nullptr ? Device() : kGpu) {
    for (size_t p = 0; p < parameters; ++p) {
      weights_.push_back(Allocate(runtime, CountOf(kShapes[p])));
      gradients_.push_back(Allocate(runtime, CountOf(kShapes[p])));
    }
  }

  absl::Status Start(Communicator& world, const ReducerOptions& options) {
    auto made = DistributedOptimizer::Create(world, Momentum{.learning_rate = 0.125f, .momentum = 0.5f}, options);
    if (!made.ok()) return made.status();
    optimizer_ = *std::move(made);
    for (size_t p = 0; p < weights_.size(); ++p) {
      const std::string name = absl::StrCat("p", p);
      Put(weights_[p], Values(0, p, CountOf(kShapes[p])));
      const auto added = p == kTable ? optimizer_->RegisterRows(name, Span(weights_[p], p), kRows, device_)
                                     : optimizer_->Register(name, Span(weights_[p], p), kShapes[p], device_);
      if (!added.ok()) return added.status();
    }
    return optimizer_->Start();
  }

  absl::Status Step(int step) {
    absl::Status status;
    for (size_t p = 0; p < weights_.size(); ++p) {
      const int index = static_cast<int>(p);
      const int64_t count = p == kTable ? kGiven * kWidth : CountOf(kShapes[p]);
      Put(gradients_[p], Values(step, p, count));
      if (p != kTable) {
        status.Update(optimizer_->Ready(index, Span(gradients_[p], p), device_));
        continue;
      }
      const int64_t first = step + rank_;  // some are of both ranks
      rows_ = {first, first + 1, first + 9};
      status.Update(optimizer_->ReadyRows(index, rows_, {gradients_[p].data(), count, DType::kF32, device_}));
    }
    status.Update(optimizer_->Step().status());
    return status;
  }

  std::vector<float> Weights(size_t p) {
    std::vector<float> values(static_cast<size_t>(CountOf(kShapes[p])));
    Copy(values.data(), weights_[p].data(), values.size() * sizeof(float));
    return values;
  }

 private:
  static int64_t CountOf(const std::vector<int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  }

  Buffer Allocate(Runtime& runtime, int64_t count) const {
    auto made = runtime.Allocate(count * static_cast<int64_t>(sizeof(float)), device_);
    EXPECT_THAT(made, IsOk());
    return *std::move(made);
  }

  static std::span<float> Span(const Buffer& buffer, size_t p) {
    return {reinterpret_cast<float*>(buffer.data()), static_cast<size_t>(CountOf(kShapes[p]))};
  }

  // Eighths, so that sums of two ranks are exact.
  std::vector<float> Values(int step, size_t p, int64_t count) const {
    std::vector<float> values(static_cast<size_t>(count));
    support::FillExact(values, static_cast<uint64_t>(step) * 10 + p, rank_);
    return values;
  }

  void Put(Buffer& to, const std::vector<float>& values) {
    Copy(to.data(), values.data(), values.size() * sizeof(float));
  }
  void Copy(void* to, const void* from, size_t bytes) {
    if (gpu_ == nullptr) {
      std::memcpy(to, from, bytes);
      return;
    }
    EXPECT_THAT(gpu_->Copy(to, from, static_cast<int64_t>(bytes), nullptr), IsOk());
    EXPECT_THAT(gpu_->Synchronize(nullptr), IsOk());
  }

  const int rank_;
  device::Gpu* const gpu_;
  const Device device_;
  std::vector<Buffer> weights_, gradients_;
  std::vector<int64_t> rows_;
  std::unique_ptr<DistributedOptimizer> optimizer_;
};

void TrainOn(const HostSizes& hosts, const ReducerOptions& options) {
  RunOnCuda(hosts, [&](Runtime& runtime, device::Gpu& gpu) {
    Training on_host(runtime, nullptr), on_gpu(runtime, &gpu);
    ASSERT_THAT(on_host.Start(runtime.world(), options), IsOk());
    ASSERT_THAT(on_gpu.Start(runtime.world(), options), IsOk());
    for (int step = 1; step <= 8; ++step) {
      ASSERT_THAT(on_host.Step(step), IsOk());
      ASSERT_THAT(on_gpu.Step(step), IsOk());
      for (size_t p = 0; p < Training::kShapes.size(); ++p) {
        ASSERT_EQ(on_gpu.Weights(p), on_host.Weights(p)) << "weights " << p << " after step " << step;
      }
    }
  });
}

TEST(ProcessesOnCuda, TrainAsOnTheHost) {
  TrainOn({2}, {});
}

TEST(ProcessesOnCuda, TrainAsOnTheHostWithWhatIsQuantised) {
  TrainOn({1, 1}, {.compression = Int8(), .always_compress = true});
}

TEST(ProcessesOnCuda, TrainAsOnTheHostWithTheLargestElements) {
  TrainOn({1, 1}, {.compression = Dgc{.sparsity = 0.9, .momentum = 0.5f}, .always_compress = true});
}

// `gyre-bench gpu step` says whether CUDA took what was captured.
TEST(ProcessesOnCuda, OneTrainsAsOnTheHostByGraphs) {
  TrainOn({1}, {.graphs = true});
}

// After some steps of a runtime of its own: servers hold one model.
std::vector<std::vector<float>> TrainedByAServer(const support::Rank& rank, device::Gpu* gpu) {
  const support::TemporaryDirectory folder;
  const std::string id = support::UniqueName("served");
  ps::Serving server(0, folder.path() / "0", {.id = id, .epoch = 0});
  server.Start();
  RuntimeOptions options = support::JobOptions(rank);
  options.job_id = id;
  options.secret = ps::kSecret;
  options.strategy = absl::StrCat("ps,servers=", ToString(server.endpoint()));
  const auto runtime = support::JoinJob(rank, options);
  if (runtime == nullptr) return {};
  Training training(*runtime, gpu, Training::kTable);
  EXPECT_THAT(training.Start(runtime->world(), {}), IsOk());
  for (int step = 1; step <= 8; ++step) EXPECT_THAT(training.Step(step), IsOk());
  return {training.Weights(0), training.Weights(1)};
}

TEST(ProcessesOnCuda, OneTrainsAsOnTheHostThroughAServer) {
  support::RunProcesses(1, [](const support::Rank& rank) {
    const auto gpu = device::OpenGpuUnderTest("cuda");
    if (absl::IsUnavailable(gpu.status())) GTEST_SKIP() << gpu.status().message();
    ASSERT_THAT(gpu, IsOk());
    EXPECT_EQ(TrainedByAServer(rank, gpu->get()), TrainedByAServer(rank, nullptr));
  });
}

TEST(ProcessesOnCuda, OperationsByNameInAnyOrder) {
  RunOnCuda({3}, [](Runtime& runtime, device::Gpu& gpu) {
    constexpr int64_t kCount = 1000;
    const int me = runtime.world().rank();
    const auto names = NamedOperations::Create(runtime.world());
    ASSERT_THAT(names, IsOk());
    const auto buffer = runtime.Allocate(2 * kCount * 4, kGpu);
    ASSERT_THAT(buffer, IsOk());
    const TensorView both(buffer->data(), 2 * kCount, DType::kF32, kGpu);
    for (int round = 0; round < 20; ++round) {
      std::vector<float> values(2 * kCount, static_cast<float>(me + round));
      ASSERT_THAT(gpu.Copy(both.data, values.data(), both.bytes(), nullptr), IsOk());
      std::vector<Work> works;
      for (const int64_t turn : {0, 1}) {
        const int64_t which = (turn + me) % 2;
        works.push_back((*names)->AllReduce(absl::StrCat("t", which), both.Slice(which * kCount, kCount)));
      }
      for (Work& work : works) ASSERT_THAT(work.Wait(), IsOk());
      ASSERT_THAT(gpu.Copy(values.data(), both.data, both.bytes(), nullptr), IsOk());
      ASSERT_THAT(gpu.Synchronize(nullptr), IsOk());
      ASSERT_EQ(values, std::vector<float>(2 * kCount, static_cast<float>(3 + 3 * round))) << "round " << round;
    }
  });
}

}  // namespace
}  // namespace gyre
