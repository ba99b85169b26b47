// Compression on GPUs, the emulated one and, where there is one, a real one: the same bits as src/compression on the
// CPU.
#include "device/gpu_codecs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "compression/codec.h"
#include "compression/dgc.h"
#include "compression/quantize.h"
#include "compression/selector.h"
#include "compression/sparse.h"
#include "device/gpu_dgc.h"
#include "device/gpu_under_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/mutator.h"
#include "support/status_matchers.h"

namespace gyre::device {
namespace {

using compression::PayloadKind;
using support::IsOk;
using support::MatchesStatus;
using support::Mutator;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct SparseCase {
  int64_t count;
  uint32_t entries;
  std::vector<uint32_t> indices = {};
  std::vector<float> values = {};
  std::vector<std::byte> payload = {};  // the CPU's
};

class GpuCodecsTest : public GpuUnderTest {
 protected:
  std::vector<std::byte> Written(const SparseCase& with, ValueType type);
};

float Uniform(Mutator& random) {
  return static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0);
}

void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i])) << what << " " << i;
  }
}

// A payload with one NaN for all: which one an addition gives is the processor's choice.
std::vector<std::byte> OneNan(Quantizer kind, std::vector<std::byte> payload) {
  const auto replace = [&](auto infinity, auto sign) {
    decltype(infinity) code;
    for (size_t at = 0; at + sizeof code <= payload.size(); at += sizeof code) {
      std::memcpy(&code, &payload[at], sizeof code);
      if ((code & ~sign) > infinity) std::memset(&payload[at], 0xff, sizeof code);
    }
  };
  if (kind == Quantizer::kF32) replace(uint32_t{0x7f800000}, uint32_t{0x80000000});
  if (kind == Quantizer::kBF16) replace(uint16_t{0x7f80}, uint16_t{0x8000});
  return payload;
}

// Of all magnitudes that codecs tell apart, and in some blocks what they cannot send.
std::vector<float> Values(int64_t count, uint64_t seed) {
  Mutator random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = random.OneIn(20) ? -0.0f : std::ldexp(Uniform(random), -static_cast<int>(random.Below(20)));
    if (i / 256 % 8 == 3) values[i] = std::ldexp(values[i], -110);
    if (i / 256 % 8 == 4) values[i] = std::ldexp(values[i], 118);
  }
  if (count > 5 * 256) values[5 * 256 + 7] = kNan;
  if (count > 6 * 256) values[6 * 256 + 1] = -kInf;
  if (count > 7 * 256) values[7 * 256 + 9] = 0x1.8p120f;
  return values;
}

TEST_P(GpuCodecsTest, QuantisersAreTheCpus) {
  for (int number = 0; number < kQuantizers; ++number) {
    const auto kind = static_cast<Quantizer>(number);
    const auto cpu = static_cast<PayloadKind>(number);
    for (const int64_t count : {0, 1, 3, 8, 255, 257, 1001, 4099}) {
      for (const bool has_gradient : {true, false}) {
        for (const bool has_kept : {true, false}) {
          if (!has_gradient && !has_kept) continue;
          SCOPED_TRACE(std::to_string(number) + " of " + std::to_string(count) + (has_gradient ? " gradient" : "") +
                       (has_kept ? " kept" : ""));
          const auto gradient = Values(count, static_cast<uint64_t>(count) + 1);
          auto kept = Values(count, static_cast<uint64_t>(count) + 2);
          for (float& value : kept) value = std::abs(value) < 0x1p100f ? 0.01f * value : 0.0f;
          const uint64_t seed = 0x123456789abcdefu;
          ASSERT_EQ(QuantizedBytes(kind, count), compression::QuantizedBytes(cpu, count));
          std::vector<std::byte> expected(static_cast<size_t>(QuantizedBytes(kind, count)) + 1, std::byte{0x5a});
          const size_t offset = count % 2 == 0 ? 0 : 1;
          float* const there = has_gradient ? Put(gradient, offset) : nullptr;
          float* const kept_there = has_kept ? Put(kept, count == 1001 ? 3 : 0) : nullptr;
          std::byte* const out = Put(expected, has_gradient && has_kept ? 12 : has_kept ? 16 : 4);
          compression::Quantize(cpu, has_gradient ? gradient.data() : nullptr, has_kept ? kept.data() : nullptr, count,
                                seed, expected.data());
          ASSERT_THAT(gpu_->codecs().Quantize(kind, there, kept_there, count, seed, out, nullptr), IsOk());
          ASSERT_EQ(OneNan(kind, Get(out, expected.size())), OneNan(kind, expected));
          if (has_kept) {
            ASSERT_EQ(BitsOf(Get(kept_there, kept.size())), BitsOf(kept));
          }
          if (has_gradient) {
            ASSERT_EQ(BitsOf(Get(there, gradient.size())), BitsOf(gradient));
          }

          auto sum = Values(count, 9);
          float* const sum_there = Put(sum, offset);
          compression::DequantizeAdd(cpu, expected.data(), count, 0.3f, sum.data());
          ASSERT_THAT(gpu_->codecs().DequantizeAdd(kind, out, count, 0.3f, sum_there, nullptr), IsOk());
          const auto got = Get(sum_there, sum.size());
          for (size_t i = 0; i < sum.size(); ++i) {  // which NaN it is, is the processor's choice
            if (std::isnan(sum[i])) {
              ASSERT_TRUE(std::isnan(got[i])) << i;
            } else {
              ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(sum[i])) << i;
            }
          }
        }
      }
    }
  }
}

TEST_P(GpuCodecsTest, WhatCannotBeQuantisedIsRefused) {
  const auto invalid = [](const std::string& what) { return MatchesStatus(absl::StatusCode::kInvalidArgument, what); };
  GpuCodecs& codecs = gpu_->codecs();
  float* const memory = Put(std::vector<float>(4));
  auto* const bytes = reinterpret_cast<std::byte*>(memory);
  EXPECT_THAT(codecs.Quantize(Quantizer::kInt8, nullptr, nullptr, 1, 0, bytes, nullptr), invalid("neither"));
  EXPECT_THAT(codecs.Quantize(Quantizer::kInt8, memory, nullptr, 1, 0, bytes + 2, nullptr), invalid("multiple of 4"));
  EXPECT_THAT(codecs.DequantizeAdd(Quantizer::kInt8, bytes + 1, 1, 1, memory, nullptr), invalid("multiple of 4"));
}

// Several densities, up to three chunks; 70,000 elements of which 20,000 are chosen go as a bitmap.
std::vector<SparseCase> SparseCases(ValueType type) {
  std::vector<SparseCase> cases = {
      {0, 0}, {1, 0}, {1, 1}, {65536, 3}, {70'000, 20'000}, {131'075, 9'000}, {9'000'011, 2'001}};
  Mutator random(21);
  for (SparseCase& with : cases) {
    for (uint32_t i = 0; i < with.entries; ++i) {  // one of each run, as likely the first or last as any other
      const auto begin = static_cast<uint32_t>(with.count * i / with.entries);
      const auto end = static_cast<uint32_t>(with.count * (i + 1) / with.entries);
      with.indices.push_back(random.OneIn(3) ? begin : random.OneIn(3) ? end - 1 : begin + random.Below(end - begin));
      with.values.push_back(std::ldexp(Uniform(random), -static_cast<int>(random.Below(40))));
    }
    if (with.entries == 2'001) {
      with.values[7] = kInf;
      with.values[8] = -kNan;
      with.values[1500] = std::numeric_limits<float>::max();
    }
    std::vector<float> left = with.values;
    compression::EncodeSparse(with.indices, left, with.count, {.values = type, .link_bytes_per_second = 1e30},
                              with.payload);
  }
  return cases;
}

struct SparseThere {
  float *values, *residual;
  std::byte* out;
  uint64_t* bytes;
};

// The payload that the GPU writes.
std::vector<std::byte> GpuCodecsTest::Written(const SparseCase& with, ValueType type) {
  const auto values = static_cast<kernels::SparseValues>(type);
  const int64_t most = MostSparseBytes(with.count, with.entries, values);
  auto* const out = Put(std::vector<std::byte>(static_cast<size_t>(most)));
  auto* const bytes = Put(std::vector<uint64_t>(1));
  const kernels::SparseEncoding task{
      Put(with.indices), Put(with.values), Put(std::vector<uint32_t>{with.entries}), with.count, nullptr, out, bytes};
  EXPECT_THAT(gpu_->codecs().EncodeSparse(std::vector{task}, values, nullptr), IsOk());
  return Get(out, Get(bytes, 1)[0]);
}

TEST_P(GpuCodecsTest, SparsePayloadsAreTheCpus) {
  for (const ValueType type : {ValueType::kF32, ValueType::kF16, ValueType::kBF16}) {
    const auto type_there = static_cast<kernels::SparseValues>(type);
    const auto cases = SparseCases(type);
    std::vector<kernels::SparseEncoding> tasks;
    std::vector<SparseThere> there;
    for (const SparseCase& with : cases) {
      const int64_t most = MostSparseBytes(with.count, with.entries, type_there);
      there.push_back({Put(with.values), Put(std::vector<float>(static_cast<size_t>(with.count), 0.25f)),
                       Put(std::vector<std::byte>(static_cast<size_t>(most))), Put(std::vector<uint64_t>(1))});
      tasks.push_back({Put(with.indices), there.back().values, Put(std::vector<uint32_t>{with.entries}), with.count,
                       there.back().residual, there.back().out, there.back().bytes});
    }
    ASSERT_THAT(gpu_->codecs().EncodeSparse(tasks, type_there, nullptr), IsOk());
    for (size_t c = 0; c < cases.size(); ++c) {
      const SparseCase& with = cases[c];
      SCOPED_TRACE(std::to_string(static_cast<int>(type)) + ": " + std::to_string(with.entries) + " of " +
                   std::to_string(with.count));
      const uint64_t bytes = Get(there[c].bytes, 1)[0];
      ASSERT_LE(bytes, static_cast<uint64_t>(MostSparseBytes(with.count, with.entries, type_there)));
      const auto payload = Get(there[c].out, bytes);
      if (payload.size() !=
          with.payload.size()) {  // bitmaps, where they are smaller; the CPU takes what is read soonest
        ASSERT_LT(payload.size(), with.payload.size());
        ASSERT_EQ(payload[12 + 8], std::byte{kernels::kBitmapCode});
      } else {
        ASSERT_EQ(payload, with.payload);
      }
      compression::SparseDecoder cpu, gpu;
      ASSERT_THAT(cpu.Decode(with.payload, with.count), IsOk());
      ASSERT_THAT(gpu.Decode(payload, with.count), IsOk());
      ASSERT_TRUE(std::ranges::equal(gpu.indices(), cpu.indices()));
      ASSERT_EQ(BitsOf({gpu.values().begin(), gpu.values().end()}), BitsOf({cpu.values().begin(), cpu.values().end()}));

      std::vector<float> left = with.values, residual(static_cast<size_t>(with.count), 0.25f);
      std::vector<std::byte> again;
      compression::EncodeSparse(with.indices, left, with.count, {.values = type, .link_bytes_per_second = 1e30}, again);
      ExpectSameBits(Get(there[c].values, left.size()), left, "left");
      for (size_t i = 0; type != ValueType::kF32 && i < left.size(); ++i) residual[with.indices[i]] = left[i];
      ExpectSameBits(Get(there[c].residual, residual.size()), residual, "residual");
    }
  }
}

TEST_P(GpuCodecsTest, SparsePayloadsAreAddedAsOnTheCpu) {
  for (const ValueType type : {ValueType::kF32, ValueType::kF16, ValueType::kBF16}) {
    const auto cases = SparseCases(type);
    std::vector<kernels::SparseDecoding> tasks;
    std::vector<std::vector<std::byte>> payloads;
    for (const SparseCase& with : cases) {
      payloads.push_back(with.entries == 20'000 ? Written(with, type) : with.payload);
      tasks.push_back({Put(payloads.back(), with.entries % 2), payloads.back().size(), with.count,
                       Put(std::vector<float>(static_cast<size_t>(with.count), 0.3f)), Put(std::vector<uint32_t>(1)),
                       0.7f});
    }
    ASSERT_THAT(gpu_->codecs().DecodeAddSparse(tasks, nullptr), IsOk());
    for (size_t c = 0; c < cases.size(); ++c) {
      SCOPED_TRACE(std::to_string(cases[c].entries) + " of " + std::to_string(cases[c].count));
      std::vector<float> sum(static_cast<size_t>(cases[c].count), 0.3f);
      if (cases[c].entries == 20'000) {
        ASSERT_EQ(payloads[c][12 + 8], std::byte{kernels::kBitmapCode});
      }
      ASSERT_THAT(compression::Decoder().DecodeAdd(payloads[c], 0.7f, sum), IsOk());
      ASSERT_EQ(Get(tasks[c].fault, 1)[0], kernels::kNoFault);
      const auto got = Get(tasks[c].sum, sum.size());
      for (size_t i = 0; i < sum.size(); ++i) {
        ASSERT_TRUE(std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(sum[i]) ||
                    (std::isnan(got[i]) && std::isnan(sum[i])))
            << i;
      }
    }
  }
}

TEST_P(GpuCodecsTest, DamagedSparsePayloadsAreFoundAndNotAdded) {
  Mutator random(22);
  int damaged = 0, good = 0, unread = 0;
  for (const bool written : {false, true}) {
    for (const uint32_t entries : {90u, 3'000u}) {
      SparseCase with{entries == 90 ? 140'003 : 9'003, entries};
      for (uint32_t i = 0; i < entries; ++i) with.indices.push_back(static_cast<uint32_t>(with.count * i / entries));
      with.values.assign(entries, 1.5f);
      // By the CPU, for a slow link: Rice's code, and a bitmap. By the GPU: 16-bit blocks, and a bitmap.
      std::vector<float> left = with.values;
      compression::EncodeSparse(with.indices, left, with.count,
                                {.values = ValueType::kF16, .link_bytes_per_second = 1e6}, with.payload);
      const auto payload = written ? Written(with, ValueType::kF16) : with.payload;
      const int64_t count = with.count;
      for (int round = 0; round < 150; ++round) {
        std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
        const size_t head = std::min<size_t>(text.size(), 40);  // where edits matter most
        if (round % 3 == 1) text = random.Mutated(text);
        if (round % 3 == 2) text = random.MutatedInPlace(text.substr(0, head)) + text.substr(head);
        std::vector<std::byte> bytes(text.size());
        std::ranges::transform(text, bytes.begin(), [](char byte) { return static_cast<std::byte>(byte); });
        const kernels::SparseDecoding task{Put(bytes, 1),
                                           bytes.size(),
                                           count,
                                           Put(std::vector<float>(static_cast<size_t>(count))),
                                           Put(std::vector<uint32_t>(1)),
                                           1};
        ASSERT_THAT(gpu_->codecs().DecodeAddSparse(std::vector{task}, nullptr), IsOk());
        const uint32_t fault = Get(task.fault, 1)[0];
        std::vector<float> sum(static_cast<size_t>(count));
        const auto cpu = compression::Decoder().DecodeAdd(bytes, 1, sum);
        if (fault != kernels::kUnread) {
          ASSERT_EQ(fault == kernels::kNoFault, cpu.ok()) << round << " " << cpu;
        }
        if (fault != kernels::kNoFault) sum.assign(sum.size(), 0.0f);
        ASSERT_EQ(BitsOf(Get(task.sum, sum.size())), BitsOf(sum));
        ++(fault == kernels::kNoFault ? good : fault == kernels::kUnread ? unread : damaged);
        for (int i = 0; i < 3; ++i) {
          gpu_->Free(allocated_.back());  // the task's
          allocated_.pop_back();
        }
      }
    }
  }
  EXPECT_GT(damaged, 100);
  EXPECT_GT(good, 100);
  EXPECT_GT(unread, 40);
}

// Heavy tails, many equal values, zeros.
float GradientOf(Mutator& random, int style) {
  if (style == 0) return Uniform(random) * Uniform(random) * Uniform(random);
  if (style == 1) return static_cast<float>(static_cast<int>(random.Below(7)) - 3);
  return random.OneIn(50) ? Uniform(random) : 0.0f;
}

struct DgcCase {
  std::vector<int64_t> counts;
  double sparsity;
  DType gradients = DType::kF32;
  bool momentum = true, nesterov = false, masked = true, clear = false, gives_momenta = false;
};

// One tensor on the CPU, and the pointers to its like on the GPU.
struct Twin {
  std::vector<float> u, v;
  std::vector<char> gradient;  // as it is stored
  compression::Selector selector = {};
  int64_t non_finite = 0;
  GpuDgcTensor there = {};
};

class GpuDgcTest : public GpuCodecsTest {
 protected:
  void Make(const DgcCase& with) {
    twins_.clear();
    std::vector<GpuDgcTensor> tensors;
    for (const int64_t count : with.counts) {
      Twin& twin = twins_.emplace_back();
      twin.v.resize(static_cast<size_t>(count));
      if (with.momentum) twin.u.resize(static_cast<size_t>(count));
      twin.gradient.resize(static_cast<size_t>(count * DTypeSize(with.gradients)));
      twin.there = {.momentum = with.momentum ? Put(twin.u) : nullptr,
                    .velocity = Put(twin.v),
                    .gradient = Put(twin.gradient, count % 3 == 1 ? static_cast<size_t>(DTypeSize(with.gradients)) : 0),
                    .count = count};
      tensors.push_back(twin.there);
    }
    auto made = GpuDgc::Create(
        *gpu_, tensors,
        {.gradients = with.gradients, .least_sparsity = with.sparsity, .gives_momenta = with.gives_momenta});
    ASSERT_TRUE(made.ok()) << made.status();
    dgc_ = *std::move(made);
  }

  // What the gradients of a step are, rounded to their dtype.
  std::vector<float> Fill(Twin& twin, DType dtype, Mutator& random, int style, float scale) {
    std::vector<float> values(twin.v.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const float value = random.OneIn(3000) ? kNan : GradientOf(random, style) * scale;
      const auto store = [&](auto stored) {
        std::memcpy(&twin.gradient[i * sizeof stored], &stored, sizeof stored);
        values[i] = static_cast<float>(stored);
      };
      if (dtype == DType::kF16) {
        store(Float16(value));
      } else if (dtype == DType::kBF16) {
        store(BFloat16(value));
      } else {
        store(value);
      }
    }
    Set(static_cast<char*>(twin.there.gradient), twin.gradient);
    return values;
  }

  void ExpectSame(size_t t, const DgcCase& with) {
    Twin& twin = twins_[t];
    SCOPED_TRACE("tensor " + std::to_string(t));
    const GpuDgcChosen chosen = dgc_->chosen(static_cast<int>(t));
    const auto expected = twin.selector.indices();
    ASSERT_EQ(Get(chosen.selected, 1)[0], expected.size());
    ASSERT_EQ(Get(chosen.indices, expected.size()), std::vector<uint32_t>(expected.begin(), expected.end()));
    const auto values = twin.selector.values();
    ASSERT_EQ(BitsOf(Get(chosen.values, values.size())), BitsOf({values.begin(), values.end()}));
    const auto momenta = twin.selector.momenta();
    ASSERT_EQ(chosen.momenta != nullptr, with.gives_momenta && with.momentum);
    if (chosen.momenta != nullptr) {
      ExpectSameBits(Get(chosen.momenta, momenta.size()), {momenta.begin(), momenta.end()}, "what u was");
    }
    ExpectSameBits(Get(twin.there.velocity, twin.v.size()), twin.v, "v");
    if (with.momentum) {
      ExpectSameBits(Get(twin.there.momentum, twin.u.size()), twin.u, "u");
    }
    const auto gradient = Get(static_cast<const char*>(twin.there.gradient), twin.gradient.size());
    ASSERT_EQ(gradient, with.clear ? std::vector<char>(twin.gradient.size()) : twin.gradient);
  }

  void Run(const DgcCase& with, int steps, uint64_t seed) {
    Make(with);
    Mutator random(seed);
    for (int step = 0; step < steps; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      const float scale = step == 3 ? 1e4f : 1;  // makes the next threshold far too high
      const kernels::DgcStep options{.sparsity = step == 1 ? 0.5 * (1 + with.sparsity) : with.sparsity,
                                     .factor = 0.9f,
                                     .scale = 0.7f,
                                     .nesterov = with.nesterov,
                                     .masked = with.masked,
                                     .clear = with.clear};
      for (size_t t = 0; t < twins_.size(); ++t) {
        Twin& twin = twins_[t];
        const auto gradient = Fill(twin, with.gradients, random, static_cast<int>(t + seed) % 3, scale);
        const auto count = static_cast<int64_t>(gradient.size());
        if (count == 0) continue;
        const compression::Accumulation arrays{.momentum = with.momentum ? twin.u.data() : nullptr,
                                               .velocity = twin.v.data(),
                                               .gradient = gradient.data(),
                                               .factor = 0.9f,
                                               .scale = 0.7f,
                                               .nesterov = with.nesterov,
                                               .masked = with.masked};
        const int64_t k = compression::KeptCount(options.sparsity, count);
        twin.non_finite += twin.selector.SelectLargest(arrays, count, k).non_finite;
      }
      ASSERT_THAT(dgc_->Step(options, nullptr), IsOk());
      for (size_t t = 0; t < twins_.size(); ++t) {
        if (!twins_[t].v.empty()) ExpectSame(t, with);
      }
    }
    const auto summaries = dgc_->Read(nullptr);
    ASSERT_TRUE(summaries.ok()) << summaries.status();
    for (size_t t = 0; t < twins_.size(); ++t) EXPECT_EQ((*summaries)[t].non_finite, twins_[t].non_finite);
    for (const GpuDgcSummary& summary : *summaries) rescans_ += summary.rescans;
  }

  std::vector<Twin> twins_;
  std::unique_ptr<GpuDgc> dgc_;
  int64_t rescans_ = 0;
};

TEST_P(GpuDgcTest, ChoosesAndKeepsWhatTheCpuDoes) {
  const std::vector<int64_t> counts = {4096, 0, 1, 30001, 5, 12289, 12288, 4097};
  Run({.counts = counts, .sparsity = 0.99}, 7, 1);
  Run({.counts = counts, .sparsity = 0.9, .nesterov = true, .clear = true}, 5, 2);
  Run({.counts = counts, .sparsity = 0.95, .masked = false}, 5, 3);
  Run({.counts = counts, .sparsity = 0.98, .momentum = false}, 5, 4);
  Run({.counts = counts, .sparsity = 0.97, .gradients = DType::kBF16, .clear = true}, 5, 5);
  Run({.counts = counts, .sparsity = 0.97, .gradients = DType::kF16, .nesterov = true}, 5, 6);
  Run({.counts = {700, 2000}, .sparsity = 0.01}, 3, 7);
  Run({.counts = {}, .sparsity = 0.9}, 1, 8);
  Run({.counts = {700, 2000, 3}, .sparsity = 0, .momentum = false, .clear = true}, 4, 9);
  Run({.counts = {20'001}, .sparsity = 0}, 3, 10);
  Run({.counts = counts, .sparsity = 0.97, .gives_momenta = true}, 5, 11);
  Run({.counts = counts, .sparsity = 0.97, .masked = false, .gives_momenta = true}, 5, 12);
  Run({.counts = counts, .sparsity = 0.97, .momentum = false, .gives_momenta = true}, 2, 13);
  EXPECT_GT(rescans_, 20);  // at first lists overflow, and after the large gradients they are too short
}

// Lists that are too long for one block, and more tiles than threads that place them.
TEST_P(GpuDgcTest, LargeTensorsAreAsOnTheCpu) {
  Run({.counts = {300'001}, .sparsity = 0.85}, 7, 31);
  EXPECT_LT(rescans_, 6);  // the others were of long lists
  Run({.counts = {3, 150'001, 80'000}, .sparsity = 0.75}, 5, 33);
  Run({.counts = {270'000}, .sparsity = 0.9, .gradients = DType::kBF16, .momentum = false, .clear = true}, 5, 32);
}

// What DgcTensor does with halves: what rounding takes stays in v.
TEST_P(GpuDgcTest, PayloadsOfAStepAreThoseOfTheCpu) {
  const DgcCase with{.counts = {50'001}, .sparsity = 0.99};
  Make(with);
  compression::DgcTensor cpu(Dgc{.sparsity = 0.99, .momentum = 0.9f, .values = ValueType::kF16}, 50'001, 1e30);
  const int64_t most = MostSparseBytes(50'001, 500, kernels::SparseValues::kF16);
  auto* const out = Put(std::vector<std::byte>(static_cast<size_t>(most)));
  auto* const bytes = Put(std::vector<uint64_t>(1));
  Mutator random(13);
  for (int step = 0; step < 5; ++step) {
    const auto gradient = Fill(twins_[0], DType::kF32, random, 0, 1);
    std::vector<std::byte> payload;
    ASSERT_THAT(cpu.Encode(gradient, step, payload), IsOk());
    ASSERT_THAT(dgc_->Step({.sparsity = 0.99, .factor = 0.9f}, nullptr), IsOk());
    ASSERT_THAT(
        gpu_->codecs().EncodeSparse(std::vector{dgc_->encoding(0, out, bytes)}, kernels::SparseValues::kF16, nullptr),
        IsOk());
    ASSERT_EQ(Get(out, Get(bytes, 1)[0]), payload);
    ExpectSameBits(Get(twins_[0].there.velocity, 50'001), {cpu.state()[1].begin(), cpu.state()[1].end()}, "v");
    ExpectSameBits(Get(twins_[0].there.momentum, 50'001), {cpu.state()[0].begin(), cpu.state()[0].end()}, "u");
  }
}

// While v grows from nothing, lists overflow; after that they do.
TEST_P(GpuDgcTest, UsualStepsNeedNoRescan) {
  const DgcCase with{.counts = {200'000}, .sparsity = 0.99};
  Make(with);
  Mutator random(11);
  int64_t begun = 0;
  for (int step = 0; step < 12; ++step) {
    Fill(twins_[0], DType::kF32, random, 0, 1);
    ASSERT_THAT(dgc_->Step({.sparsity = 0.99}, nullptr), IsOk());
    const auto summaries = dgc_->Read(nullptr);
    ASSERT_TRUE(summaries.ok()) << summaries.status();
    EXPECT_EQ((*summaries)[0].selected, 2000);
    EXPECT_GT((*summaries)[0].threshold, 0);
    if (step == 3) begun = (*summaries)[0].rescans;
    if (step == 11) {
      EXPECT_EQ((*summaries)[0].rescans, begun);
    }
  }
  EXPECT_GT(begun, 0);
  EXPECT_LT(begun, 4);
}

TEST_P(GpuDgcTest, AccumulatesWithoutChoosing) {
  const DgcCase with{.counts = {5000}, .sparsity = 0.9};
  Make(with);
  Mutator random(12);
  const auto gradient = Fill(twins_[0], DType::kF32, random, 0, 1);
  ASSERT_THAT(dgc_->Step({.sparsity = 0.9, .select = false}, nullptr), IsOk());
  const int64_t non_finite = compression::Accumulate(
      {.momentum = twins_[0].u.data(), .velocity = twins_[0].v.data(), .gradient = gradient.data(), .factor = 0.9f}, 0,
      5000);
  const auto summaries = dgc_->Read(nullptr);
  ASSERT_TRUE(summaries.ok()) << summaries.status();
  EXPECT_EQ((*summaries)[0].non_finite, non_finite);
  EXPECT_EQ(BitsOf(Get(twins_[0].there.velocity, 5000)), BitsOf(twins_[0].v));
  EXPECT_EQ(BitsOf(Get(twins_[0].there.momentum, 5000)), BitsOf(twins_[0].u));
}

// The memory of a tensor without elements counts for nothing.
TEST_P(GpuDgcTest, EmptyTensorsDoNotSayWhetherThereIsMomentum) {
  const DgcCase with{.counts = {2000}, .sparsity = 0.9, .momentum = false};
  Make(with);
  const GpuDgcTensor empty{.momentum = Put(std::vector<float>(1))};
  auto made = GpuDgc::Create(*gpu_, std::vector{empty, twins_[0].there}, {.least_sparsity = 0.9});
  ASSERT_TRUE(made.ok()) << made.status();
  Mutator random(14);
  Fill(twins_[0], DType::kF32, random, 0, 1);
  ASSERT_THAT((*made)->Step({.sparsity = 0.9}, nullptr), IsOk());
  EXPECT_EQ(Get((*made)->chosen(1).selected, 1)[0], 200u);
}

// A gradient of nothing but NaNs and infinities, as a step with too large a loss scale has it.
TEST_P(GpuDgcTest, WhatIsNotFiniteIsCountedAndLeftOut) {
  const DgcCase with{.counts = {30'001}, .sparsity = 0.9};
  Make(with);
  std::vector<float> gradient(30'001, kNan);
  for (size_t i = 0; i < gradient.size(); i += 3) gradient[i] = -kInf;
  Set(static_cast<float*>(twins_[0].there.gradient), gradient);
  for (const bool select : {true, false}) {
    ASSERT_THAT(dgc_->Step({.sparsity = 0.9, .select = select}, nullptr), IsOk());
  }
  const auto summaries = dgc_->Read(nullptr);
  ASSERT_TRUE(summaries.ok()) << summaries.status();
  EXPECT_EQ((*summaries)[0].non_finite, 2 * 30'001);
  EXPECT_EQ((*summaries)[0].selected, 0);
  EXPECT_EQ(Get(twins_[0].there.velocity, gradient.size()), std::vector<float>(gradient.size()));
}

TEST_P(GpuDgcTest, SaysWhatIsWrong) {
  const auto invalid = [](const std::string& what) { return MatchesStatus(absl::StatusCode::kInvalidArgument, what); };
  float* const memory = Put(std::vector<float>(16));
  const auto create = [&](const GpuDgcTensor& second, const GpuDgcOptions& options = {}) {
    const GpuDgcTensor first{.momentum = memory, .velocity = memory, .gradient = memory, .count = 4};
    return GpuDgc::Create(*gpu_, std::vector{first, second}, options).status();
  };
  const GpuDgcTensor good{.momentum = memory, .velocity = memory, .gradient = memory + 1, .count = 4};
  GpuDgcTensor bad = good;
  EXPECT_THAT(create(good), IsOk());
  EXPECT_THAT(create(good, {.gradients = DType::kF64}), invalid("gradients of f64"));
  EXPECT_THAT(create(good, {.least_sparsity = 1}), invalid("a sparsity of 1"));
  bad.count = int64_t{1} << 32;
  EXPECT_THAT(create(bad), invalid("tensor 1: its size"));
  bad = good;
  bad.velocity = nullptr;
  EXPECT_THAT(create(bad), invalid("tensor 1: its memory"));
  bad = good;
  bad.momentum = nullptr;
  EXPECT_THAT(create(bad), invalid("tensor 1: it has momentum"));
  bad = good;
  bad.momentum = memory + 1;
  EXPECT_THAT(create(bad), invalid("tensor 1: accumulators must be aligned"));
  const auto made = GpuDgc::Create(*gpu_, std::vector{good}, {.least_sparsity = 0.9});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT((*made)->Step({.sparsity = 0.5}, nullptr), invalid("where there is memory for 0.9"));
  EXPECT_THAT((*made)->Step({.sparsity = 0, .select = false}, nullptr), IsOk());
  EXPECT_THAT(create(good, {.least_sparsity = 0}), IsOk());
  EXPECT_THAT(create(good, {.least_sparsity = -0.5}), invalid("a sparsity of -0.5"));
  for (const float wrong : {kInf, -kInf, kNan}) {
    EXPECT_THAT((*made)->Step({.factor = wrong}, nullptr), invalid("a factor of"));
    EXPECT_THAT((*made)->Step({.scale = wrong, .select = false}, nullptr), invalid("both must be finite"));
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuCodecsTest, ::testing::Values("fake", "cuda"),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Gpus, GpuDgcTest, ::testing::Values("fake", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gyre::device
