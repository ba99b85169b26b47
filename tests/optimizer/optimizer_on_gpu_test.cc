// Updates on the fake GPU, and on a real one where there is one, against Optimizer on the host: the same bits.
#include "optimizer/optimizer_on_gpu.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "device/fake_gpu.h"
#include "device/gpu_under_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using absl::StatusCode;
using device::FakeGpu;
using device::Gpu;
using support::IsOk;
using support::MatchesStatus;

// More tensors than one launch takes; the last two are updated on a stream of their own.
std::vector<int64_t> Counts() {
  std::vector<int64_t> counts = {1, 0, 4, 1023, 70'000, 64, 5};
  for (int i = 0; i < 100; ++i) counts.push_back(i % 9);
  return counts;
}

std::vector<OptimizerConfig> Rules() {
  return {Sgd{.learning_rate = 0.1f, .weight_decay = 0.3f},
          Momentum{.learning_rate = 0.05f, .momentum = 0.8f, .weight_decay = 0.2f},
          Momentum{.learning_rate = 0.05f, .momentum = 0.8f, .nesterov = true, .weight_decay = 0.2f},
          Adam{.learning_rate = 0.02f, .weight_decay = 0.1f},
          Adagrad{.learning_rate = 0.1f, .initial_accumulator = 0.5f, .weight_decay = 0.1f}};
}

std::vector<float> Random(int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(engine);
  return values;
}

TimePoint Soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(60);
}

class OptimizerOnGpuTest : public device::GpuUnderTest {
 protected:
  void SetUp() override {
    GpuUnderTest::SetUp();
    if (gpu_ == nullptr) return;
    for (Gpu::Stream& stream : streams_) stream = *gpu_->CreateStream();
  }
  void TearDown() override {
    GpuUnderTest::TearDown();
    if (gpu_ == nullptr) return;
    for (Gpu::Stream const stream : streams_) gpu_->DestroyStream(stream);
  }

  // Some begin where no four floats can be loaded at once.
  float* Put(const std::vector<float>& values, size_t number, Gpu::Stream stream) {
    const size_t offset = number % 3 == 2 ? 1 : 0;
    const auto memory = gpu_->Allocate(static_cast<int64_t>((values.size() + offset) * sizeof(float)));
    EXPECT_THAT(memory, IsOk());
    allocated_.push_back(*memory);
    float* const at = static_cast<float*>(*memory) + offset;
    EXPECT_THAT(gpu_->Copy(at, values.data(), Bytes(values), stream), IsOk());
    EXPECT_THAT(gpu_->Synchronize(stream), IsOk());
    return at;
  }
  std::vector<float> Get(const float* from, int64_t count, Gpu::Stream stream) {
    std::vector<float> values(static_cast<size_t>(count));
    EXPECT_THAT(gpu_->Copy(values.data(), from, Bytes(values), stream), IsOk());
    EXPECT_THAT(gpu_->Synchronize(stream), IsOk());
    return values;
  }
  static int64_t Bytes(const std::vector<float>& values) { return static_cast<int64_t>(values.size() * sizeof(float)); }

  Gpu::Stream StreamOf(size_t buffer, size_t of) const { return streams_[buffer + 2 >= of ? 1 : 0]; }
  std::unique_ptr<OptimizerOnGpu> Make(const OptimizerConfig& rule, const std::vector<int64_t>& counts) {
    std::vector<OptimizerOnGpu::Buffer> buffers;
    for (size_t i = 0; i < counts.size(); ++i) buffers.push_back({counts[i], StreamOf(i, counts.size())});
    auto made = OptimizerOnGpu::Create(gpu_, rule, buffers, Soon());
    EXPECT_THAT(made, IsOk());
    return made.ok() ? *std::move(made) : nullptr;
  }

  std::vector<Gpu::Stream> streams_ = {nullptr, nullptr};
};

TEST_P(OptimizerOnGpuTest, GivesOptimizersBits) {
  const std::vector<int64_t> counts = Counts();
  for (const OptimizerConfig& rule : Rules()) {
    Optimizer reference = Optimizer::Create(rule, counts).value();
    const auto optimizer = Make(rule, counts);
    ASSERT_NE(optimizer, nullptr);
    std::vector<std::vector<float>> expected;
    std::vector<float*> weights;
    for (size_t i = 0; i < counts.size(); ++i) {
      expected.push_back(Random(counts[i], static_cast<unsigned>(i)));
      weights.push_back(Put(expected[i], i, StreamOf(i, counts.size())));
    }
    for (unsigned step = 0; step < 4; ++step) {
      if (step == 3) {
        ASSERT_THAT(optimizer->SetLearningRate(0.25f), IsOk());
        ASSERT_THAT(reference.SetLearningRate(0.25f), IsOk());
      }
      std::vector<OptimizerOnGpu::Update> updates;
      for (size_t i = 0; i < counts.size(); ++i) {
        if (i % 5 == 3 && step == 2) continue;  // so that the step counts differ
        std::vector<float> gradient = Random(counts[i], 1000 * (step + 1) + static_cast<unsigned>(i));
        const bool zeros = i % 7 == 4 && step == 1;
        updates.push_back({i, weights[i], zeros ? nullptr : Put(gradient, i + step, StreamOf(i, counts.size()))});
        if (zeros) gradient.assign(gradient.size(), 0.0f);
        ASSERT_THAT(reference.Step(static_cast<int>(i), expected[i], gradient), IsOk());
      }
      ASSERT_THAT(optimizer->Step(updates), IsOk());
    }
    EXPECT_EQ(optimizer->learning_rate(), 0.25f);
    for (size_t i = 0; i < counts.size(); ++i) {
      EXPECT_EQ(Get(weights[i], counts[i], StreamOf(i, counts.size())), expected[i])
          << rule.index() << ", tensor " << i;
    }
    EXPECT_EQ(*optimizer->Save(Soon()), reference.Save());
  }
}

TEST_P(OptimizerOnGpuTest, StatesGoFromOneToTheOther) {
  const std::vector<int64_t> counts = {19, 300};
  for (const OptimizerConfig& rule : Rules()) {
    Optimizer host = Optimizer::Create(rule, counts).value();
    std::vector<float> a = Random(19, 1), b = Random(300, 2);
    for (unsigned step = 0; step < 3; ++step) {
      ASSERT_THAT(host.Step(0, a, Random(19, 10 + step)), IsOk());
      ASSERT_THAT(host.Step(1, b, Random(300, 20 + step)), IsOk());
    }
    const auto optimizer = Make(rule, counts);
    ASSERT_NE(optimizer, nullptr);
    ASSERT_THAT(optimizer->Restore(host.Save(), Soon()), IsOk());
    float* const there = Put(b, 0, StreamOf(1, 2));
    const std::vector<float> gradient = Random(300, 30);
    const std::vector<OptimizerOnGpu::Update> update = {{1, there, Put(gradient, 1, StreamOf(1, 2))}};
    ASSERT_THAT(optimizer->Step(update), IsOk());
    ASSERT_THAT(host.Step(1, b, gradient), IsOk());
    EXPECT_EQ(Get(there, 300, StreamOf(1, 2)), b);

    const std::vector<std::byte> good = *optimizer->Save(Soon());
    EXPECT_EQ(good, host.Save());
    std::vector<std::byte> bad = good;
    bad[bad.size() / 2] ^= std::byte{0x10};
    EXPECT_THAT(optimizer->Restore(bad, Soon()), MatchesStatus(StatusCode::kDataLoss, "checksum"));
    const Optimizer other = Optimizer::Create(rule, std::vector<int64_t>{19, 301}).value();
    EXPECT_THAT(optimizer->Restore(other.Save(), Soon()), MatchesStatus(StatusCode::kInvalidArgument, "count"));
    EXPECT_EQ(*optimizer->Save(Soon()), good) << "nothing has changed";
  }
}

TEST_P(OptimizerOnGpuTest, RefusesWhatOptimizerDoes) {
  const std::vector<OptimizerOnGpu::Buffer> some = {{.count = 3}}, negative = {{.count = 3}, {.count = -1}};
  EXPECT_THAT(OptimizerOnGpu::Create(gpu_, Adam{.beta2 = 1.5f}, some, Soon()),
              MatchesStatus(StatusCode::kInvalidArgument, "beta2 is 1.5"));
  EXPECT_THAT(OptimizerOnGpu::Create(gpu_, Sgd{}, negative, Soon()),
              MatchesStatus(StatusCode::kInvalidArgument, "buffer 1 has -1"));
  const auto optimizer = Make(Sgd{.learning_rate = 0.5f}, {3});
  EXPECT_THAT(optimizer->SetLearningRate(std::numeric_limits<float>::quiet_NaN()),
              MatchesStatus(StatusCode::kInvalidArgument, "learning_rate"));
  EXPECT_EQ(optimizer->learning_rate(), 0.5f);
}

INSTANTIATE_TEST_SUITE_P(Gpus, OptimizerOnGpuTest, testing::Values("fake", "cuda"),
                         [](const auto& info) { return info.param; });

TEST(OptimizerOnGpu, AGpuThatHangsIsSaid) {
  const auto gpu = std::make_shared<FakeGpu>();
  const std::vector<OptimizerOnGpu::Buffer> buffers = {{.count = 100}};
  const auto past = [] { return std::chrono::steady_clock::now(); };
  {
    const auto optimizer = OptimizerOnGpu::Create(gpu, Adam{}, buffers, Soon()).value();
    const std::vector<std::byte> state = *optimizer->Save(Soon());
    std::vector<float> weights(100, 1.0f);
    gpu->Stall(true);
    const std::vector<OptimizerOnGpu::Update> update = {{0, weights.data(), nullptr}};
    ASSERT_THAT(optimizer->Step(update), IsOk());
    EXPECT_THAT(optimizer->Save(past()), MatchesStatus(StatusCode::kDeadlineExceeded, "GPU 0 had not finished"));
    EXPECT_THAT(optimizer->Restore(state, past()), MatchesStatus(StatusCode::kDeadlineExceeded, "GPU 0"));
    gpu->Stall(false);
    EXPECT_THAT(optimizer->Save(Soon()), IsOk());
  }
  EXPECT_EQ(gpu->blocked(), 0);
}

}  // namespace
}  // namespace gyre
