// cudnn_cnn's network as it is, on host_cuda.cc in place of CUDA's libraries: its gradients are the derivatives of its
// loss, each is told of once, and it learns.
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "images.h"
#include "network.h"
#include "support/status_matchers.h"

namespace cudnn_cnn {
namespace {

using gyre::support::IsOk;

class NetworkTest : public ::testing::Test {
 protected:
  void Make(const Options& options, int images, int side, int batch) {
    options_ = options;
    images_ = GenerateImages(5, images, side);
    auto gpu = OpenGpu(0);
    ASSERT_THAT(gpu, IsOk());
    gpu_ = *std::move(gpu);
    batch_ = batch;
    const NetworkShape shape = MakeNetworkShape(side, side, images_.classes, options.width, options.blocks);
    auto network = Network::Make(gpu_, shape, batch, options);
    ASSERT_THAT(network, IsOk());
    network_ = *std::move(network);
    std::vector<void*> gradients;
    for (const Parameter& each : network_->parameters()) {
      memory_.emplace_back(static_cast<size_t>(each.count));
      gradients.push_back(memory_.back().data());
    }
    ASSERT_THAT(network_->UseGradients(gradients), IsOk());
    int64_t count = 0;
    for (const Parameter& each : network_->parameters()) count += each.count;
    EXPECT_EQ(count, shape.parameters());
  }

  double Loss(const std::vector<int32_t>& indices) {
    const Data data{.pixels = images_.pixels.data(), .labels = images_.labels.data(), .channels = images_.channels};
    EXPECT_THAT(network_->Forward(data, indices.data()), IsOk());
    return std::accumulate(network_->losses(), network_->losses() + batch_, 0.0) / batch_;
  }

  void Backward() {
    std::vector<int> told(network_->parameters().size());
    ASSERT_THAT(network_->Backward([&](int i) {
      ++told[static_cast<size_t>(i)];
      return absl::OkStatus();
    }),
                IsOk());
    EXPECT_THAT(told, ::testing::Each(1));
  }

  Options options_;
  Images images_;
  Gpu gpu_;
  int batch_ = 0;
  std::unique_ptr<Network> network_;
  std::vector<std::vector<float>> memory_;  // of gradients; large enough for either type
};

TEST_F(NetworkTest, GradientsAreTheDerivativesOfTheLoss) {
  Make({.width = 8, .blocks = 2}, 12, 9, 6);
  const std::vector<int32_t> indices = {3, 0, 11, 7, 7, 2};
  Loss(indices);
  Backward();
  const auto gradients = memory_;
  for (size_t p = 0; p < gradients.size(); ++p) {
    const Parameter& parameter = network_->parameters()[p];
    double square = 0;
    for (const float each : gradients[p]) square += double{each} * each;
    ASSERT_GT(square, 0) << parameter.name;
    // Along the gradient, where the loss changes most: by its length.
    const double step = 5e-4 / std::sqrt(square);
    const std::vector<float> before(parameter.weight, parameter.weight + parameter.count);
    const auto at = [&](double side) {
      for (size_t i = 0; i < before.size(); ++i) {
        parameter.weight[i] = static_cast<float>(before[i] + side * step * gradients[p][i]);
      }
      return Loss(indices);
    };
    const double slope = (at(1) - at(-1)) / (2 * step);
    std::copy(before.begin(), before.end(), parameter.weight);
    EXPECT_NEAR(slope / square, 1, 0.05) << parameter.name;
  }
}

TEST_F(NetworkTest, LearnsInEitherPrecision) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    memory_.clear();
    constexpr int kSteps = 40, kBatch = 16;
    Make({.steps = kSteps, .width = 8, .blocks = 1, .precision = precision}, 64, 12, kBatch);
    Sampler sampler(1, 64, kBatch);
    double first = 0, last = 0;
    for (int step = 0; step < kSteps; ++step) {
      const double loss = Loss(sampler.Draw(step, 0, 1));
      if (step < 4) first += loss / 4;
      if (step >= kSteps - 4) last += loss / 4;
      Backward();
      ASSERT_THAT(network_->Update(LearningRate(0.1f, step, kSteps), 0.9f), IsOk());
    }
    EXPECT_LT(last, 0.7 * first) << (precision == Precision::kF32 ? "f32" : "bf16");
    RecordProperty(precision == Precision::kF32 ? "f32" : "bf16", std::to_string(last / first));
  }
}

}  // namespace
}  // namespace cudnn_cnn
