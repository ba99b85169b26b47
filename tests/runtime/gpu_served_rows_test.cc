// Rows of servers' tables on GPUs, which do what is queued late; and what clients of servers refuse of GPUs.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gyre/distributed_optimizer.h"
#include "runtime/served_job.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::GpuRank;
using support::IsOk;
using support::MatchesStatus;
using support::ServedJob;

constexpr int64_t kRows = 64, kColumns = 3;

// Some rows in each step, one of them twice, by the step and the worker.
std::vector<int64_t> RowsOf(int worker, int step) {
  return {step, 40 + worker, 2 * step + worker, step, 20 + step * worker};
}

std::span<float> Span(const TensorView& view) {
  return {static_cast<float*>(view.data), static_cast<size_t>(view.count)};
}

// A worker that has rows on its GPU, or on the host. A gradient is the rows as they were pulled, and noise, pushed by
// two calls of which the second is of memory on the host; what was pushed is written over at once.
class RowsWorker {
 public:
  RowsWorker(GpuRank& rank, bool on_gpu)
      : client(ParameterServerClient::Create(rank.world(), Momentum{.learning_rate = 0.25f}).value()), rank_(rank) {
    EXPECT_EQ(client->RegisterTable("words", kRows, kColumns, UniformRows{0.5f, 3}).value(), 0);
    if (!on_gpu) return;
    other_ = *rank_.gpu->CreateStream();
    pulled_ = *rank_.gpu->CreateEvent();
    constexpr int64_t kMost = kRows * kColumns;
    there_ = Place{rank_.Tensor(DType::kF32, kMost, rank_.stream), rank_.Tensor(DType::kF32, kMost, other_),
                   rank_.Tensor(DType::kF32, kMost, other_)};
  }
  ~RowsWorker() {
    client.reset();
    there_.reset();
    if (other_ == nullptr) return;
    rank_.gpu->DestroyEvent(pulled_);
    rank_.gpu->DestroyStream(other_);
  }
  RowsWorker(const RowsWorker&) = delete;
  RowsWorker& operator=(const RowsWorker&) = delete;

  absl::Status Step(int step) {
    const std::vector<int64_t> ids = RowsOf(rank_.rank.rank, step);
    std::vector<float> noise(ids.size() * kColumns);
    for (size_t i = 0; i < noise.size(); ++i) noise[i] = 0.1f * static_cast<float>((i + static_cast<size_t>(step)) % 7);
    absl::Status status = there_ ? PushThere(ids, noise) : PushHere(ids, noise);
    const std::vector<int64_t> more = {3, 2};
    std::vector<float> ones(more.size() * kColumns, 1);
    status.Update(client->PushRows(0, more, ones));
    std::ranges::fill(ones, 1e30f);
    status.Update(client->PushPull());
    return status;
  }

  std::vector<float> All() {
    std::vector<int64_t> ids(kRows);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> values(static_cast<size_t>(kRows * kColumns));
    if (!there_) {
      EXPECT_THAT(client->PullRows(0, ids, values), IsOk());
      return values;
    }
    EXPECT_THAT(client->PullRows(0, ids, there_->values.view), IsOk());
    rank_.Get(there_->values.view, values.data());
    rank_.Settle(rank_.stream);
    return values;
  }

  std::unique_ptr<ParameterServerClient> client;

 private:
  struct Place {
    GpuRank::Memory values, noise, gradients;
  };

  absl::Status PushHere(const std::vector<int64_t>& ids, const std::vector<float>& noise) {
    std::vector<float> values(noise.size());
    absl::Status status = client->PullRows(0, ids, values);
    for (size_t i = 0; i < values.size(); ++i) values[i] += noise[i];
    status.Update(client->PushRows(0, ids, values));
    return status;
  }

  absl::Status PushThere(const std::vector<int64_t>& ids, std::vector<float> noise) {
    const auto count = std::ssize(noise);
    const TensorView values = there_->values.view.Slice(0, count);
    const TensorView gradients = there_->gradients.view.Slice(0, count);
    absl::Status status = client->PullRows(0, ids, values);
    rank_.Put(there_->noise.view.Slice(0, count), Keep(std::move(noise)));
    EXPECT_THAT(rank_.gpu->Record(pulled_, rank_.stream), IsOk());
    EXPECT_THAT(rank_.gpu->Wait(other_, pulled_), IsOk());
    const std::vector<const void*> sources = {values.data, there_->noise.view.data};
    EXPECT_THAT(rank_.gpu->Reduce({}, sources, std::span(&gradients.data, 1), count, other_), IsOk());
    EXPECT_THAT(rank_.gpu->Record(pulled_, other_), IsOk());  // the next rows come after these were read
    EXPECT_THAT(rank_.gpu->Wait(rank_.stream, pulled_), IsOk());
    status.Update(client->PushRows(0, ids, gradients));
    rank_.Put(gradients, Keep(std::vector<float>(static_cast<size_t>(count), 1e30f)));
    return status;
  }

  const float* Keep(std::vector<float> values) {
    return kept_.emplace_back(std::make_unique<std::vector<float>>(std::move(values)))->data();
  }

  GpuRank& rank_;
  void* other_ = nullptr;
  device::Gpu::Event pulled_ = nullptr;
  std::optional<Place> there_;
  std::vector<std::unique_ptr<std::vector<float>>> kept_;
};

// All rows in the end. `on_gpu`: by worker.
std::vector<float> TrainRows(unsigned seed, const std::vector<bool>& on_gpu) {
  constexpr int kWorkers = 2, kSteps = 6;
  std::mutex mutex;
  std::vector<std::vector<float>> ends(kWorkers);
  const ServedJob job(2);
  job.Run(kWorkers, seed, [&](GpuRank& rank) {
    const int64_t pinned = rank.gpu->pinned();
    {
      RowsWorker worker(rank, on_gpu[static_cast<size_t>(rank.rank.rank)]);
      ASSERT_THAT(worker.client->Start(), IsOk());
      for (int step = 0; step < kSteps; ++step) ASSERT_THAT(worker.Step(step), IsOk());
      const std::vector<float> end = worker.All();
      std::lock_guard lock(mutex);
      ends[static_cast<size_t>(rank.rank.rank)] = end;
    }
    EXPECT_EQ(rank.gpu->pinned(), pinned);
    EXPECT_EQ(rank.gpu->blocked(), 0);
  });
  EXPECT_EQ(ends[0], ends[1]);
  return ends[0];
}

TEST(GpuServedRowsTest, RowsAreThoseOfTheHostToTheBit) {
  const std::vector<float> expected = TrainRows(1, {false, false});
  EXPECT_GT(std::ranges::count_if(expected, [](float value) { return value < -0.5f; }), 0) << "nothing was trained";
  EXPECT_EQ(TrainRows(2, {true, true}), expected);
  EXPECT_EQ(TrainRows(3, {true, false}), expected);
}

TEST(GpuServedRowsTest, AFrozenGpuIsNamedByTheDeadlineAndItsRowsForgotten) {
  const ServedJob job(1);
  job.Run(1, 1, [](GpuRank& rank) {
    auto client =
        ParameterServerClient::Create(rank.world(), Sgd{.learning_rate = 1}, {.timeout = support::TimeoutOf(true)})
            .value();
    ASSERT_THAT(client->RegisterTable("words", kRows, 1), IsOk());
    ASSERT_THAT(client->Start(), IsOk());
    const auto tensor = rank.Tensor(DType::kF32, 2, rank.stream);
    const std::vector<float> ones = {1, 1};
    const std::vector<int64_t> ids = {4, 5};
    rank.Put(tensor.view, ones.data());
    rank.gpu->Stall(true);
    ASSERT_THAT(client->PushRows(0, ids, tensor.view), IsOk());
    EXPECT_THAT(client->Push(),
                MatchesStatus(StatusCode::kDeadlineExceeded, "GPU 0 of rank 0 had not copied rows of table words"));
    rank.gpu->Stall(false);
    ASSERT_THAT(client->PushRows(0, std::span(ids).first(1), tensor.view.Slice(0, 1)), IsOk());
    ASSERT_THAT(client->PushPull(), IsOk());
    std::vector<float> values(2);
    ASSERT_THAT(client->PullRows(0, ids, values), IsOk());
    EXPECT_EQ(values, (std::vector<float>{-1, 0}));
    // What was pushed and never sent does not outlive the client.
    ASSERT_THAT(client->PushRows(0, ids, tensor.view), IsOk());
    client.reset();
    EXPECT_EQ(rank.gpu->pinned(), 0);
    EXPECT_EQ(rank.gpu->blocked(), 0);
  });
}

Device PerThread() {
  return {.gpu = 0, .stream = reinterpret_cast<void*>(uintptr_t{2})};
}

TEST(GpuServedRowsTest, RowsThatAreElsewhereAreRefused) {
  const ServedJob job(1);
  job.Run(1, 1, [](GpuRank& rank) {
    auto client = ParameterServerClient::Create(rank.world(), Sgd{}).value();
    ASSERT_THAT(client->RegisterTable("words", kRows, kColumns), IsOk());
    ASSERT_THAT(client->Start(), IsOk());
    const auto tensor = rank.Tensor(DType::kF32, kColumns, rank.stream);
    const std::vector<int64_t> ids = {1};
    const auto refuses = [&](const TensorView& view, StatusCode code, const char* text) {
      EXPECT_THAT(client->PullRows(0, ids, view), MatchesStatus(code, text));
      EXPECT_THAT(client->PushRows(0, ids, view), MatchesStatus(code, text));
    };
    ASSERT_THAT(client->PullRows(0, ids, tensor.view), IsOk());
    const auto on = [&](const Device& device) { return TensorView(tensor.view.data, kColumns, DType::kF32, device); };
    refuses(on({.gpu = 1, .stream = nullptr}), StatusCode::kInvalidArgument,
            "words: they are on GPU 1; what came before them was on GPU 0");
    refuses(on(PerThread()), StatusCode::kInvalidArgument, "words: they are on cudaStreamPerThread");
    refuses(tensor.view.Slice(0, 2), StatusCode::kInvalidArgument, "2 values for 1 rows of 3");
    refuses({tensor.view.data, kColumns, DType::kF64, rank.device()}, StatusCode::kInvalidArgument, "not f64");
    std::vector<std::byte> host(kColumns * sizeof(float) + 1);
    refuses({host.data() + 1, kColumns, DType::kF32}, StatusCode::kInvalidArgument, "aligned");
    void* const captured = *rank.gpu->CreateStream();
    rank.gpu->LetProgramCapture(captured);
    refuses(on(rank.on(captured)), StatusCode::kFailedPrecondition, "captured");
    rank.gpu->DestroyStream(captured);
    EXPECT_THAT(client->PushPull(), IsOk());
  });
}

TEST(GpuServedRowsTest, WeightsThatAreElsewhereAreRefused) {
  const ServedJob job(1);
  job.Run(1, 1, [](GpuRank& rank) {
    const auto there = rank.Tensor(DType::kF32, 10, rank.stream);
    const std::vector<float> first(10, 1);
    rank.Put(there.view, first.data());
    rank.Settle(rank.stream);
    std::vector<float> here(10, 1);
    const std::vector<int64_t> shape = {10};
    auto optimizer = DistributedOptimizer::Create(rank.world(), Sgd{.learning_rate = 1}).value();
    const auto refuses = [&](const Device& device, const char* text) {
      EXPECT_THAT(optimizer->Register("w", Span(there.view), shape, device),
                  MatchesStatus(StatusCode::kInvalidArgument, text));
    };
    refuses(PerThread(), "weights \"w\": they are on cudaStreamPerThread");
    void* const captured = *rank.gpu->CreateStream();
    ASSERT_THAT(optimizer->Register("there", Span(there.view), shape, rank.on(captured)), IsOk());
    ASSERT_THAT(optimizer->Register("here", here), IsOk());
    refuses({.gpu = 1, .stream = nullptr}, "weights \"w\": they are on GPU 1; what came before them was on GPU 0");
    ASSERT_THAT(optimizer->Start(), IsOk());
    EXPECT_THAT(optimizer->Ready(0, here), MatchesStatus(StatusCode::kInvalidArgument, "given on the host"));
    EXPECT_THAT(optimizer->Ready(1, Span(there.view), rank.device()),
                MatchesStatus(StatusCode::kInvalidArgument, "given on GPU 0; its weights are on the host"));
    EXPECT_THAT(optimizer->Ready(0, Span(there.view), {.gpu = 1, .stream = nullptr}),
                MatchesStatus(StatusCode::kInvalidArgument, "given on GPU 1; its weights are on GPU 0"));
    EXPECT_THAT(optimizer->Ready(0, Span(there.view), PerThread()),
                MatchesStatus(StatusCode::kInvalidArgument, "cudaStreamPerThread"));
    EXPECT_THAT(optimizer->Ready(0, Span(there.view).first(9), rank.device()),
                MatchesStatus(StatusCode::kInvalidArgument, "of 9 elements"));
    ASSERT_THAT(optimizer->Missing(0), IsOk());
    ASSERT_THAT(optimizer->Missing(1), IsOk());
    ASSERT_THAT(optimizer->Step(), IsOk());
    rank.gpu->LetProgramCapture(captured);
    const auto captures = MatchesStatus(StatusCode::kFailedPrecondition, "captured");
    EXPECT_THAT(optimizer->Ready(0, Span(there.view), rank.device()), captures);
    EXPECT_THAT(optimizer->Missing(0), captures);
    ASSERT_THAT(optimizer->Ready(0), IsOk());
    ASSERT_THAT(optimizer->Ready(1), IsOk());
    EXPECT_THAT(optimizer->Step(), captures);
    optimizer.reset();
    rank.gpu->DestroyStream(captured);
  });
}

TEST(GpuServedRowsTest, AGpuThatHasNoRoomSaysSoBeforeAnythingIsSent) {
  const ServedJob job(1);
  job.Run(1, 1, [](GpuRank& rank) {
    const auto there = rank.Tensor(DType::kF32, 10, rank.stream);
    const std::vector<float> first(10, 3);
    rank.Put(there.view, first.data());
    const std::vector<int64_t> shape = {10};
    auto client = ParameterServerClient::Create(rank.world(), Sgd{}).value();
    ASSERT_THAT(client->Register("w", Span(there.view), shape, rank.device()), IsOk());
    rank.gpu->FailPin(absl::ResourceExhaustedError("no more pages"));
    EXPECT_THAT(client->Start(), MatchesStatus(StatusCode::kResourceExhausted, "no more pages"));
    rank.gpu->FailPin(absl::OkStatus());
    rank.gpu->FailAllocate(absl::ResourceExhaustedError("out of memory"));
    EXPECT_THAT(client->Start(), MatchesStatus(StatusCode::kResourceExhausted, "out of memory"));
    EXPECT_EQ(rank.gpu->pinned(), 0);
    rank.gpu->FailAllocate(absl::OkStatus());
    ASSERT_THAT(client->Start(), IsOk());
    std::vector<float> values(10);
    rank.Get(there.view, values.data());
    rank.Settle(rank.stream);
    EXPECT_EQ(values, first);
  });
}

}  // namespace
}  // namespace gyre
