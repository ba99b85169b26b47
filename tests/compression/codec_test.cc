#include "compression/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "compression/state.h"
#include "support/mutator.h"
#include "support/status_matchers.h"

namespace gyre::compression {
namespace {

using support::IsOk;
using support::MatchesStatus;
using support::Mutator;

// Multiples of 2^-10 below 1: sums over a thousand steps are exact.
std::vector<float> ExactGradient(Mutator& random, int64_t count) {
  std::vector<float> gradient(count);
  for (float& value : gradient) value = static_cast<float>(static_cast<int>(random.Below(2047)) - 1023) * 0x1p-10f;
  return gradient;
}

std::unique_ptr<Codec> Make(const std::string& name, int64_t count) {
  return MakeCodec(ParseCompression(name).value(), count).value();
}

constexpr const char* kAll[] = {"none", "fp16",    "bf16", "fp8",          "fp8-e5m2", "int8",        "int4",
                                "sign", "ternary", "topk", "topk-sampled", "randomk",  "randomk:0.5", "dgc:0.9"};

TEST(Codec, EveryOneGoesThereAndBackAtEverySize) {
  Mutator random(1);
  Decoder decoder;
  std::vector<std::byte> payload;
  for (const char* name : kAll) {
    for (const int64_t count : {0, 1, 2, 3, 255, 256, 257, 5001}) {
      SCOPED_TRACE(std::string(name) + " of " + std::to_string(count));
      const auto codec = Make(name, count);
      for (int step = 0; step < 3; ++step) {
        const auto gradient = ExactGradient(random, count);
        ASSERT_THAT(codec->Encode(gradient, step, payload), IsOk());
        std::vector<float> sum(count);
        ASSERT_THAT(decoder.DecodeAdd(payload, 1, sum), IsOk());
        for (const auto& array : codec->state()) ASSERT_EQ(static_cast<int64_t>(array.size()), count);
        if (std::string(name) == "none") {
          EXPECT_EQ(sum, gradient);
        }
      }
      EXPECT_THAT(codec->Encode(std::vector<float>(count + 1), 3, payload),
                  MatchesStatus(absl::StatusCode::kInvalidArgument, "elements, not"));
    }
  }
}

TEST(Codec, ClearsTheGradientAndSendsTheSame) {
  Mutator random(3);
  std::vector<std::byte> expected, payload;
  for (const char* name : kAll) {
    for (const int64_t count : {0, 1, 63, 257, 5001}) {
      const auto codec = Make(name, count), other = Make(name, count);
      for (int step = 0; step < 3; ++step) {
        auto gradient = ExactGradient(random, count);
        ASSERT_THAT(codec->Encode(gradient, step, expected), IsOk());
        ASSERT_THAT(other->EncodeAndClear(gradient, step, payload), IsOk());
        ASSERT_EQ(payload, expected) << name << " " << count;
        ASSERT_EQ(gradient, std::vector<float>(static_cast<size_t>(count))) << name << " " << count;
      }
    }
  }
}

// What was sent and what is kept is what was given, bit by bit: with momentum 0, over 1,000 steps of random shapes.
TEST(Codec, NothingIsLostBitByBitOverAThousandSteps) {
  Mutator random(2);
  Decoder decoder;
  std::vector<std::byte> payload;
  int steps = 0;
  while (steps < 1000) {
    const auto count = static_cast<int64_t>(1 + random.Below(random.OneIn(4) ? 20'000 : 700));
    Dgc dgc{.sparsity = 0.5 + 0.499 * static_cast<double>(random.Below(1000)) / 1000, .momentum = 0};
    dgc.nesterov = random.OneIn(2);
    dgc.values = static_cast<ValueType>(random.Below(3));
    const TopK top{.sparsity = dgc.sparsity, .sampled = random.OneIn(2), .values = dgc.values};
    const Compression choice = random.OneIn(3)   ? Compression(dgc)
                               : random.OneIn(2) ? Compression(top)
                                                 : Compression(RandomK{.sparsity = dgc.sparsity, .seed = random()});
    const auto codec = MakeCodec(choice, count).value();
    std::vector<float> given(count), sent(count);
    for (int step = 0; step < 25; ++step, ++steps) {
      const auto gradient = ExactGradient(random, count);
      for (int64_t i = 0; i < count; ++i) given[i] += gradient[i];
      ASSERT_THAT(codec->Encode(gradient, step, payload), IsOk());
      ASSERT_THAT(decoder.DecodeAdd(payload, 1, sent), IsOk());
    }
    const auto kept = codec->state().back();
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(sent[i] + kept[i] + 0.0f), std::bit_cast<uint32_t>(given[i] + 0.0f))
          << CompressionName(choice) << " " << count << " " << i;
    }
  }
}

TEST(Codec, TopKSendsTheLargestAndSampledAboutAsMany) {
  Mutator random(3);
  const auto gradient = ExactGradient(random, 100'000);
  std::vector<std::byte> payload;
  SparseDecoder decoder;
  const auto exact = Make("topk:0.99", 100'000);
  ASSERT_THAT(exact->Encode(gradient, 0, payload), IsOk());
  ASSERT_THAT(decoder.Decode(payload, 100'000), IsOk());
  ASSERT_EQ(decoder.indices().size(), 1000u);
  float least = 1, most = 0;
  for (const float value : decoder.values()) least = std::min(least, std::abs(value));
  const auto kept = exact->state()[0];
  for (const float value : kept) most = std::max(most, std::abs(value));
  EXPECT_GE(least, most);

  const auto sampled = Make("topk-sampled:0.99", 100'000);
  for (int step = 0; step < 10; ++step) {
    ASSERT_THAT(sampled->Encode(ExactGradient(random, 100'000), step, payload), IsOk());
    ASSERT_THAT(decoder.Decode(payload, 100'000), IsOk());
    EXPECT_GE(decoder.indices().size(), 600u);
    EXPECT_LE(decoder.indices().size(), 2000u);
  }
}

TEST(Codec, RandomKSendsTheSamePositionsEverywhereAndAllInTurn) {
  constexpr int64_t kCount = 1003;
  const auto one = Make("randomk:0.9", kCount), other = Make("randomk:0.9", kCount);
  std::vector<std::byte> payload;
  Decoder decoder;
  std::vector<float> ever(kCount);
  for (int step = 0; step < 300; ++step) {
    std::vector<float> first(kCount), second(kCount);
    ASSERT_THAT(one->Encode(std::vector<float>(kCount, 1.0f), step, payload), IsOk());
    ASSERT_THAT(decoder.DecodeAdd(payload, 1, first), IsOk());
    ASSERT_THAT(other->Encode(std::vector<float>(kCount, 2.0f), step, payload), IsOk());
    ASSERT_THAT(decoder.DecodeAdd(payload, 1, second), IsOk());
    int64_t sent = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(first[i] != 0, second[i] != 0);
      sent += first[i] != 0 ? 1 : 0;
      ever[i] += first[i];
    }
    ASSERT_EQ(sent, 100);
  }
  EXPECT_TRUE(std::ranges::all_of(ever, [](float value) { return value > 0; }));
}

TEST(Decoder, RefusesWhatIsNoPayloadAndChangesNothing) {
  Mutator random(4);
  std::vector<std::byte> payload;
  Decoder decoder;
  for (const char* name : kAll) {
    SCOPED_TRACE(name);
    ASSERT_THAT(Make(name, 300)->Encode(ExactGradient(random, 300), 0, payload), IsOk());
    std::vector<float> sum(300, 1.0f), longer(301, 1.0f);
    EXPECT_THAT(decoder.DecodeAdd(payload, 1, longer), MatchesStatus(absl::StatusCode::kDataLoss, ""));
    payload.pop_back();
    EXPECT_THAT(decoder.DecodeAdd(payload, 1, sum), MatchesStatus(absl::StatusCode::kDataLoss, ""));
    payload.resize(5);
    EXPECT_THAT(decoder.DecodeAdd(payload, 1, sum), MatchesStatus(absl::StatusCode::kDataLoss, "header"));
    EXPECT_EQ(sum, std::vector<float>(300, 1.0f));
    EXPECT_EQ(longer, std::vector<float>(301, 1.0f));
  }
}

TEST(MakeCodec, SaysWhatIsWrong) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(MakeCodec(Fp16{}, -1), MatchesStatus(kInvalid, "-1 elements"));
  EXPECT_THAT(MakeCodec(TopK{.sparsity = 2}, 5), MatchesStatus(kInvalid, "topk: sparsity is 2"));
  EXPECT_THAT(MakeCodec(PowerSgd{}, 5), MatchesStatus(kInvalid, "two factors"));
}

TEST(State, IsCarriedToAnotherNumberOfRanks) {
  Mutator random(5);
  std::vector<std::byte> payload;
  std::vector<std::vector<std::byte>> saved;
  std::vector<double> total(500);
  for (int rank = 0; rank < 4; ++rank) {
    const auto codec = Make("topk:0.9", 500), unused = Make("none", 7);
    ASSERT_THAT(codec->Encode(ExactGradient(random, 500), 0, payload), IsOk());
    for (int i = 0; i < 500; ++i) total[i] += codec->state()[0][i];
    const std::vector<Codec*> codecs = {codec.get(), unused.get()};
    saved.push_back(SaveState(codecs));
  }
  std::vector<double> carried(500);
  for (int rank = 0; rank < 3; ++rank) {  // 4 ranks become 3
    std::vector<std::span<const std::byte>> mine;
    for (int old = rank; old < 4; old += 3) mine.emplace_back(saved[old]);
    const auto codec = Make("topk:0.9", 500), unused = Make("none", 7);
    const std::vector<Codec*> codecs = {codec.get(), unused.get()};
    ASSERT_THAT(RestoreState(mine, codecs), IsOk());
    for (int i = 0; i < 500; ++i) carried[i] += codec->state()[0][i];
    if (mine.size() == 1) {
      EXPECT_EQ(SaveState(codecs), saved[rank]);
    }
  }
  EXPECT_EQ(carried, total);
}

TEST(State, RefusesWhatIsNone) {
  const auto codec = Make("dgc:0.9", 10), other = Make("dgc:0.9", 11);
  const std::vector<Codec*> codecs = {codec.get()}, others = {other.get()};
  codec->state()[0][3] = 5;
  auto saved = SaveState(codecs);
  const auto restore = [](std::span<const std::byte> bytes, const std::vector<Codec*>& into) {
    return RestoreState(std::vector{bytes}, into);
  };
  EXPECT_THAT(restore(saved, others),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "codec 0's number of elements"));
  EXPECT_THAT(restore(saved, {}), MatchesStatus(absl::StatusCode::kInvalidArgument, "number of codecs"));
  for (size_t size = 0; size < saved.size(); ++size) {
    EXPECT_THAT(restore(std::span(saved).first(size), codecs), MatchesStatus(absl::StatusCode::kDataLoss, ""));
  }
  saved[20] ^= std::byte{1};
  EXPECT_THAT(restore(saved, codecs), MatchesStatus(absl::StatusCode::kDataLoss, "checksum"));
  EXPECT_EQ(codec->state()[0][3], 5);
}

}  // namespace
}  // namespace gyre::compression
