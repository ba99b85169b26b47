// Random codecs on GPUs, the emulated one and, where there is one, a real one: the same bits as src/compression on the
// CPU.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compression/codec.h"
#include "compression/sparse_codec.h"
#include "device/gpu_codecs.h"
#include "device/gpu_under_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::device {
namespace {

using support::IsOk;
using support::MatchesStatus;

class GpuRandomCodecsTest : public GpuUnderTest {};

std::vector<float> GradientValues(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 1.7f) + 2;
  return values;
}

TEST_P(GpuRandomCodecsTest, TakeAndAddWhatTheCpuDoes) {
  for (const int64_t count : {1, 7, 1000, 300'007}) {
    for (const double sparsity : {0.0, 0.3, 0.99}) {
      SCOPED_TRACE(std::to_string(count) + " elements, sparsity " + std::to_string(sparsity));
      const RandomK options{.sparsity = sparsity, .seed = 11};
      const std::vector<float> gradient = GradientValues(count);
      const auto codec = *compression::MakeCodec(options, count);
      std::vector<std::byte> payload;
      ASSERT_THAT(codec->Encode(gradient, 3, payload), IsOk());
      const auto read = compression::ReadRandom(payload, count);
      ASSERT_TRUE(read.ok()) << read.status();
      std::vector<float> values(static_cast<size_t>(read->sent));
      std::memcpy(values.data(), read->values.data(), read->values.size());

      const int64_t sent = compression::KeptCount(sparsity, count);
      const kernels::RandomChoice choice{compression::RandomSeed(options, 3), sent, count};
      float* const kept = Put(gradient);
      float* const taken = Put(std::vector<float>(static_cast<size_t>(sent) + 1, -1.0f));
      ASSERT_THAT(gpu_->codecs().TakeRandom(choice, kept, taken, nullptr), IsOk());
      EXPECT_EQ(Get(taken, values.size()), values);
      EXPECT_EQ(Get(taken + sent, 1)[0], -1);
      const std::span<const float> left = codec->state()[0];
      EXPECT_EQ(Get(kept, left.size()), std::vector<float>(left.begin(), left.end()));

      std::vector<float> expected = gradient;
      ASSERT_THAT(compression::DecodeAddRandom(payload, 0.3f, expected), IsOk());
      float* const sum = Put(gradient);
      ASSERT_THAT(gpu_->codecs().AddRandom(choice, taken, 0.3f, sum, nullptr), IsOk());
      EXPECT_EQ(Get(sum, expected.size()), expected);
    }
  }
}

TEST_P(GpuRandomCodecsTest, RefuseChoicesThatAreNone) {
  float* const memory = Put(std::vector<float>(4));
  for (const kernels::RandomChoice& choice : {kernels::RandomChoice{1, 5, 4}, kernels::RandomChoice{1, -1, 4},
                                              kernels::RandomChoice{1, 1, int64_t{1} << 32}}) {
    const auto invalid = MatchesStatus(absl::StatusCode::kInvalidArgument, "a random choice of");
    EXPECT_THAT(gpu_->codecs().TakeRandom(choice, memory, memory, nullptr), invalid);
    EXPECT_THAT(gpu_->codecs().AddRandom(choice, memory, 1, memory, nullptr), invalid);
  }
  EXPECT_THAT(gpu_->codecs().TakeRandom({1, 0, 0}, memory, memory, nullptr), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuRandomCodecsTest, ::testing::Values("fake", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gyre::device
