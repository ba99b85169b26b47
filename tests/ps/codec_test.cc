// Payloads of pushes and values, without machines around them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "ps/pull_codec.h"
#include "ps/push_codec.h"
#include "support/mutator.h"
#include "support/status_matchers.h"

namespace gyre::ps {
namespace {

using compression::PayloadKind;
using support::IsOk;
using support::MatchesStatus;
using testing::Each;
using testing::ElementsAreArray;

std::vector<float> Noise(size_t count, uint64_t seed) {
  support::Mutator random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.Below(2001)) * 0.001f - 1;
  return values;
}

// Two partitions of one tensor, and one of another.
Layout TwoTensors() {
  const Tensor tensors[] = {{"matrix", 1500}, {"bias", 300}};
  return *Layout::Create(tensors, 1, 4000);
}

std::span<const float> PartOf(const std::vector<float>& all, const Partition& partition) {
  return std::span(all).subspan(static_cast<size_t>(partition.offset), static_cast<size_t>(partition.count));
}

// A step's push as servers read it; and its bytes, together.
std::vector<float> Push(PushCodec& codec, const Layout& layout, uint64_t step, const std::vector<float>& gradient,
                        size_t* bytes = nullptr) {
  EXPECT_THAT(codec.BeginStep(step, gradient), IsOk());
  std::vector<float> read;
  for (size_t i = 0; i < layout.partitions().size(); ++i) {
    const auto own = PartOf(gradient, layout.partitions()[i]);
    const PushCodec::Encoded encoded = codec.Encode(i, own);
    if (bytes != nullptr) *bytes += encoded.bytes.size();
    EXPECT_LE(encoded.bytes.size(), own.size_bytes());
    const Floats pushed =
        encoded.payload ? PushDecoder().Decode(encoded.bytes, own.size()) : Floats::CopyOf(encoded.bytes);
    EXPECT_EQ(pushed.size(), own.size());
    read.insert(read.end(), pushed.span().begin(), pushed.span().end());
  }
  return read;
}

// What is not sent is kept and sent later: after n steps servers have n gradients, but for what one step keeps.
TEST(PushCodecTest, WhatIsKeptIsSentLater) {
  const Layout layout = TwoTensors();
  const Compression kinds[] = {
      Fp16{}, Bf16{}, Fp8{}, Int8{}, Int4{}, Sign{}, TopK{.sparsity = 0.9}, Dgc{.sparsity = 0.9, .momentum = 0}};
  for (const Compression& kind : kinds) {
    PushCodec codec = *PushCodec::Create({.compression = kind}, layout, 3);
    const std::vector<float> gradient = Noise(1800, 7);
    std::vector<float> sum(1800);
    constexpr int kSteps = 60;
    size_t bytes = 0;
    for (uint64_t step = 0; step < kSteps; ++step) {
      const std::vector<float> read = Push(codec, layout, step, gradient, &bytes);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += read[i];
    }
    EXPECT_LT(bytes, kSteps * 1800 * 2.1) << CompressionName(kind);
    double error = 0;
    for (size_t i = 0; i < sum.size(); ++i) error += std::abs(sum[i] / kSteps - gradient[i]);
    EXPECT_LT(error / 1800, 0.15) << CompressionName(kind);
  }
}

TEST(PushCodecTest, NoneAndTensorsThatItIsNotForGoAsTheyAre) {
  const Layout layout = TwoTensors();
  const std::vector<float> gradient = Noise(1800, 8);
  PushCodec none = *PushCodec::Create({}, layout, 0);
  EXPECT_EQ(Push(none, layout, 0, gradient), gradient);
  PushCodec matrix = *PushCodec::Create({.compression = Sign{}, .dense = {false, true}}, layout, 0);
  const std::vector<float> read = Push(matrix, layout, 0, gradient);
  EXPECT_THAT(std::span(read).subspan(1500), ElementsAreArray(std::span(gradient).subspan(1500)));
  EXPECT_NE(read[0], gradient[0]);
}

TEST(PushCodecTest, ADgcAppliesItsMomentumToAllTensors) {
  const Layout layout = TwoTensors();
  const std::vector<float> gradient(1800, 1.0f);
  PushCodec codec = *PushCodec::Create({.compression = Dgc{.momentum = 0.5f}, .dense = {true, true}}, layout, 0);
  EXPECT_THAT(Push(codec, layout, 0, gradient), Each(1.0f));
  EXPECT_THAT(Push(codec, layout, 1, gradient), Each(1.5f));
  EXPECT_THAT(Push(codec, layout, 2, gradient), Each(1.75f));
}

TEST(PushCodecTest, ADgcClipsTheNormOfTheWhole) {
  const Layout layout = TwoTensors();
  PushCodec codec = *PushCodec::Create(
      {.compression = Dgc{.momentum = 0, .clip = 3}, .workers = 9, .dense = {true, true}}, layout, 0);
  const std::vector<float> read = Push(codec, layout, 0, std::vector<float>(1800, 2.0f));
  EXPECT_NEAR(std::sqrt(std::inner_product(read.begin(), read.end(), read.begin(), 0.0)), 1, 1e-5);
}

TEST(PushCodecTest, ARefusalChangesNothing) {
  const Layout layout = TwoTensors();
  const Dgc dgc{.sparsity = 0.9, .non_finite = Dgc::NonFinite::kRefuse};
  PushCodec codec = *PushCodec::Create({.compression = dgc}, layout, 0);
  PushCodec other = *PushCodec::Create({.compression = dgc}, layout, 0);
  const std::vector<float> gradient = Noise(1800, 9);
  std::vector<float> bad = gradient;
  bad[1799] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(codec.BeginStep(0, bad), MatchesStatus(absl::StatusCode::kFailedPrecondition, "1 elements"));
  for (uint64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(Push(codec, layout, step, gradient), Push(other, layout, step, gradient));
  }
}

TEST(PushCodecTest, LotsDifferByWorkerAndPartition) {
  const Tensor tensors[] = {{"a", 600}, {"b", 600}};
  const Layout layout = *Layout::Create(tensors, 1);
  const std::vector<float> half = Noise(600, 10);
  std::vector<float> gradient = half;
  gradient.insert(gradient.end(), half.begin(), half.end());
  PushCodec first = *PushCodec::Create({.compression = Ternary{}}, layout, 0);
  PushCodec second = *PushCodec::Create({.compression = Ternary{}}, layout, 1);
  const std::vector<float> one = Push(first, layout, 0, gradient), two = Push(second, layout, 0, gradient);
  EXPECT_NE(one, two);
  EXPECT_FALSE(std::equal(one.begin(), one.begin() + 600, one.begin() + 600));
}

TEST(PushCodecTest, WhatHasNoPayloadIsRefused) {
  EXPECT_THAT(PushCodec::Create({.compression = PowerSgd{}}, TwoTensors(), 0).status(),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "powersgd"));
  EXPECT_FALSE(PushCodec::Create({.compression = TopK{.sparsity = 1}}, TwoTensors(), 0).ok());
}

TEST(PushDecoderTest, WhatIsNoPayloadOfThatSizeIsNothing) {
  const Layout layout = TwoTensors();
  PushCodec codec = *PushCodec::Create({.compression = TopK{.sparsity = 0.9}}, layout, 0);
  const std::vector<float> gradient = Noise(1800, 11);
  ASSERT_THAT(codec.BeginStep(0, gradient), IsOk());
  const auto own = PartOf(gradient, layout.partitions()[0]);
  const Bytes bytes = codec.Encode(0, own).bytes;
  PushDecoder decoder;
  EXPECT_TRUE(decoder.Decode(bytes, own.size()));
  EXPECT_FALSE(decoder.Decode(bytes, own.size() + 1));
  for (size_t cut = 0; cut < bytes.size(); ++cut) EXPECT_FALSE(decoder.Decode(bytes.first(cut), own.size())) << cut;
}

TEST(PushDecoderTest, MemoryIsUsedAgainOnceNobodyHoldsIt) {
  const std::vector<float> gradient = Noise(1800, 12);
  const Layout layout = TwoTensors();
  PushCodec codec = *PushCodec::Create({.compression = Int8{}}, layout, 0);
  ASSERT_THAT(codec.BeginStep(0, gradient), IsOk());
  const Bytes bytes = codec.Encode(0, PartOf(gradient, layout.partitions()[0])).bytes;
  PushDecoder decoder;
  Floats held = decoder.Decode(bytes, 1000);
  const float* const data = held.span().data();
  EXPECT_NE(decoder.Decode(bytes, 1000).span().data(), data);
  const std::vector<float> before(held.span().begin(), held.span().end());
  EXPECT_THAT(held.span(), ElementsAreArray(before));
  held = {};
  EXPECT_EQ(decoder.Decode(bytes, 1000).span().data(), data);
}

TEST(ValueEncoderTest, ValuesComeBackRounded) {
  for (const auto& [kind, least, most] : {std::tuple{PayloadKind::kF16, 1e-5, 5e-4},
                                          {PayloadKind::kBF16, 1e-4, 4e-3},
                                          {PayloadKind::kInt8, 1e-4, 4e-3}}) {
    ASSERT_TRUE(IsForValues(kind));
    const std::vector<float> values = Noise(1001, 13);
    ValueEncoder encoder;
    const ValueEncoder::Encoded& encoded = encoder.Encode(kind, values, 1, MakePrivate);
    ASSERT_GT(encoded.bytes, 0u);
    EXPECT_EQ(encoded.words.size(), WordsOf(encoded.bytes));
    EXPECT_LT(encoded.words.size(), 520u);
    std::vector<float> read(1001, 5.0f);
    ASSERT_TRUE(DecodeValues(encoded.words.bytes().first(encoded.bytes), read));
    double worst = 0;
    for (size_t i = 0; i < read.size(); ++i) worst = std::max<double>(worst, std::abs(read[i] - values[i]));
    EXPECT_GT(worst, least);
    EXPECT_LT(worst, most);
    std::vector<float> other(1000, 5.0f);
    EXPECT_FALSE(DecodeValues(encoded.words.bytes().first(encoded.bytes), other));
    EXPECT_THAT(other, Each(5.0f));
    for (size_t cut = 0; cut < encoded.bytes; ++cut) {
      EXPECT_FALSE(DecodeValues(encoded.words.bytes().first(cut), read));
    }
  }
  EXPECT_FALSE(IsForValues(PayloadKind::kSparse));
  EXPECT_FALSE(IsForValues(PayloadKind::kSign));
}

TEST(ValueEncoderTest, OneVersionIsEncodedOnceAndWhatIsReadStays) {
  ValueEncoder encoder;
  const std::vector<float> first = Noise(100, 14), second = Noise(100, 15);
  const Floats held = encoder.Encode(PayloadKind::kF16, first, 1, MakePrivate).words;
  EXPECT_EQ(encoder.Encode(PayloadKind::kF16, second, 1, MakePrivate).words.span().data(), held.span().data());
  const std::vector<float> before(held.span().begin(), held.span().end());
  EXPECT_NE(encoder.Encode(PayloadKind::kF16, second, 2, MakePrivate).words.span().data(), held.span().data());
  EXPECT_EQ(std::memcmp(before.data(), held.span().data(), held.bytes().size()), 0);
}

TEST(ValueEncoderTest, FewValuesHaveNoPayload) {
  ValueEncoder encoder;
  EXPECT_EQ(encoder.Encode(PayloadKind::kF16, Noise(4, 16), 1, MakePrivate).bytes, 0u);
}

}  // namespace
}  // namespace gyre::ps
