// Thresholds from samples on GPUs, the emulated one and, where there is one, a real one: what is chosen, and what is
// kept, is what the codec on the CPU chooses and keeps.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compression/codec.h"
#include "compression/sparse.h"
#include "device/gpu_dgc.h"
#include "device/gpu_under_test.h"
#include "device/kernels/sample.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/mutator.h"
#include "support/status_matchers.h"

namespace gyre::device {
namespace {

using support::IsOk;
using support::MatchesStatus;
using support::Mutator;

class GpuSampleTest : public GpuUnderTest {
 protected:
  void Make(const std::vector<int64_t>& counts, double sparsity, DType gradients = DType::kF32) {
    sparsity_ = sparsity;
    gradients_ = gradients;
    tensors_.clear();
    std::vector<GpuDgcTensor> there;
    for (const int64_t count : counts) {
      const auto size = static_cast<size_t>(count);
      auto codec = compression::MakeCodec(TopK{.sparsity = sparsity, .sampled = true}, count);
      ASSERT_TRUE(codec.ok()) << codec.status();
      const std::vector<char> nothing(size * static_cast<size_t>(DTypeSize(gradients)));
      there.push_back({.velocity = Put(std::vector<float>(size)), .gradient = Put(nothing), .count = count});
      tensors_.push_back({*std::move(codec), there.back()});
    }
    auto made = GpuDgc::Create(*gpu_, there, {.gradients = gradients, .least_sparsity = sparsity, .sampled = true});
    ASSERT_TRUE(made.ok()) << made.status();
    dgc_ = *std::move(made);
  }

  // `values`: by tensor; what the gradients' dtype rounds them to is compressed by both.
  void Step(int64_t step, std::vector<std::vector<float>> values) {
    SCOPED_TRACE("step " + std::to_string(step));
    for (size_t t = 0; t < tensors_.size(); ++t) Give(tensors_[t], values[t]);
    const kernels::DgcStep options{.sparsity = sparsity_, .clear = step % 2 == 0, .seed = static_cast<uint64_t>(step)};
    ASSERT_THAT(dgc_->Step(options, nullptr), IsOk());
    selected_.clear();
    for (size_t t = 0; t < tensors_.size(); ++t) {
      SCOPED_TRACE("tensor " + std::to_string(t));
      std::vector<std::byte> payload;
      ASSERT_THAT(tensors_[t].codec->Encode(values[t], step, payload), IsOk());
      compression::SparseDecoder expected;
      ASSERT_THAT(expected.Decode(payload, tensors_[t].there.count), IsOk());
      const size_t count = expected.indices().size();
      const GpuDgcChosen chosen = dgc_->chosen(static_cast<int>(t));
      ASSERT_EQ(Get(chosen.selected, 1)[0], count);
      EXPECT_TRUE(std::ranges::equal(Get(chosen.indices, count), expected.indices()));
      EXPECT_EQ(BitsOf(Get(chosen.values, count)), BitsOf(expected.values()));
      EXPECT_EQ(BitsOf(Get(tensors_[t].there.velocity, values[t].size())), BitsOf(tensors_[t].codec->state()[0]));
      selected_.push_back(static_cast<int64_t>(count));
    }
  }

  struct Tensor {
    std::unique_ptr<compression::Codec> codec;
    GpuDgcTensor there;
  };

  void Give(const Tensor& tensor, std::vector<float>& values) {
    std::vector<char> stored(values.size() * static_cast<size_t>(DTypeSize(gradients_)));
    for (size_t i = 0; i < values.size(); ++i) {
      const auto store = [&](auto element) {
        std::memcpy(&stored[i * sizeof element], &element, sizeof element);
        values[i] = static_cast<float>(element);
      };
      gradients_ == DType::kBF16 ? store(BFloat16(values[i])) : store(values[i]);
    }
    Set(static_cast<char*>(tensor.there.gradient), stored);
  }

  double sparsity_ = 0;
  DType gradients_ = DType::kF32;
  std::vector<Tensor> tensors_;
  std::unique_ptr<GpuDgc> dgc_;
  std::vector<int64_t> selected_;  // by tensor, in the last step
};

// Some of them not finite.
std::vector<float> Noise(int64_t count, Mutator& random) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0),
                       -static_cast<int>(random.Below(9)));
    if (random.OneIn(2000)) value = std::numeric_limits<float>::infinity();
    if (random.OneIn(2000)) value = std::nanf("");
  }
  return values;
}

TEST_P(GpuSampleTest, ChoosesAndKeepsWhatTheCpuDoes) {
  const std::vector<int64_t> counts = {4096, 0, 1, 30'001, 5, 130'003, 2047};
  for (const DType gradients : {DType::kF32, DType::kBF16}) {
    for (const double sparsity : {0.0, 0.3, 0.9, 0.999}) {
      SCOPED_TRACE("sparsity " + std::to_string(sparsity));
      ASSERT_NO_FATAL_FAILURE(Make(counts, sparsity, gradients));
      Mutator random(5);
      for (int64_t step = 1; step <= 5; ++step) {
        std::vector<std::vector<float>> values;
        for (const int64_t count : counts) values.push_back(Noise(count, random));
        ASSERT_NO_FATAL_FAILURE(Step(step, values));
      }
    }
  }
}

// A sample of which chance, or who knows the lots, makes anything but a likeness of all.
TEST_P(GpuSampleTest, SamplesMayMislead) {
  constexpr int64_t kCount = 100'000, kWanted = 10'000;
  const kernels::SamplePlan plan = kernels::PlanSample(kCount, kWanted);
  ASSERT_EQ(plan.elements, 1000);
  ASSERT_EQ(plan.rank, 100);
  // How many are large besides what is drawn, and how many are then chosen: none, just enough, too many for what may be
  // sent, too many for the list.
  for (const int64_t others : {int64_t{0}, 2 * kWanted, 3 * kWanted, kCount}) {
    SCOPED_TRACE(std::to_string(others) + " are large");
    ASSERT_NO_FATAL_FAILURE(Make({kCount}, 0.9));
    std::vector<float> values(kCount);
    for (size_t i = 0; i < values.size(); ++i) {
      if (static_cast<int64_t>(i) < others) values[i] = 1 + static_cast<float>(i * 7919 % kCount) * 0x1p-20f;
    }
    for (int64_t i = 0; i < plan.elements; ++i) {
      values[compression::RandomPosition(1, i, plan.elements, kCount)] = static_cast<float>(i + 1) * 0x1p-20f;
    }
    ASSERT_NO_FATAL_FAILURE(Step(1, {values}));
    int64_t larger = 0;
    for (const float value : values) larger += value > 900 * 0x1p-20f ? 1 : 0;
    EXPECT_EQ(selected_[0], larger <= 2 * kWanted ? larger : kWanted);
    EXPECT_EQ(larger > 2 * kWanted, others > 2 * kWanted);
  }
}

TEST_P(GpuSampleTest, ZerosAreNotChosen) {
  ASSERT_NO_FATAL_FAILURE(Make({5000}, 0.9));
  std::vector<float> values(5000);
  values[77] = -2;
  values[4999] = 1e-45f;
  ASSERT_NO_FATAL_FAILURE(Step(1, {values}));
  EXPECT_EQ(selected_[0], 2);
  ASSERT_NO_FATAL_FAILURE(Step(2, {std::vector<float>(5000)}));
  EXPECT_EQ(selected_[0], 0);
}

TEST_P(GpuSampleTest, SaysWhatIsWrong) {
  const auto invalid = [](const std::string& what) { return MatchesStatus(absl::StatusCode::kInvalidArgument, what); };
  float* const memory = Put(std::vector<float>(16));
  const GpuDgcTensor tensor{.momentum = memory, .velocity = memory, .gradient = memory, .count = 4};
  EXPECT_THAT(GpuDgc::Create(*gpu_, std::vector{tensor}, {.sampled = true}).status(),
              invalid("tensor 0: it has momentum, of which a sample does not know"));
  ASSERT_NO_FATAL_FAILURE(Make({4096}, 0.9));
  EXPECT_THAT(dgc_->Step({.sparsity = 0.95}, nullptr), invalid("a sparsity of 0.95 where samples are for 0.9"));
  EXPECT_THAT(dgc_->Step({.sparsity = 0.95, .select = false}, nullptr), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuSampleTest, ::testing::Values("fake", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gyre::device
