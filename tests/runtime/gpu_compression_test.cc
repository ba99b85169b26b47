// Gradients on GPUs that travel compressed: beside others on the host, which get the same from the same ranks, and
// whose results and remainders are to be the same to the bit.
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

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/compressed_gradients.h"
#include "runtime/gpu_fixture.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::CountOf;
using support::GpuRank;
using support::GradientOf;
using support::HostSizes;
using support::IsOk;
using support::kShapes;
using support::MatchesStatus;
using support::RunOnGpus;
using Results = std::vector<std::vector<float>>;  // by gradient

// A rank's reducers of the same gradients, on the host and on its GPU.
class Twins {
 public:
  explicit Twins(GpuRank& rank) : rank_(rank) {}

  absl::Status Start(const ReducerOptions& options) {
    for (auto* const reducer : {&host, &gpu}) {
      auto made = GradientReducer::Create(rank_.world(), options);
      if (!made.ok()) return made.status();
      *reducer = *std::move(made);
      const Device device = reducer == &gpu ? rank_.device() : Device();
      for (size_t t = 0; t < kShapes.size(); ++t) {
        const auto added = (*reducer)->Register(absl::StrCat("layer", t), kShapes[t], DType::kF32, device);
        if (!added.ok()) return added.status();
      }
      if (absl::Status started = (*reducer)->Start(); !started.ok()) return started;
    }
    for (const auto& shape : kShapes) own_.push_back(rank_.Tensor(DType::kF32, CountOf(shape), rank_.stream));
    return absl::OkStatus();
  }

  // The gradients of a step, or of a micro-batch, go to both; on the GPU some in memory of the program's own.
  void Give(int64_t step) {
    for (size_t t = kShapes.size(); t-- > 0;) {
      const auto index = static_cast<int>(t);
      std::vector<float>& values = *kept_.emplace_back(std::make_unique<std::vector<float>>());
      for (int64_t i = 0; i < CountOf(kShapes[t]); ++i) values.push_back(GradientOf(rank_.rank, t, i, step));
      if (spoils) values[static_cast<size_t>(step)] = std::numeric_limits<float>::infinity();
      std::memcpy(host->gradient(index).data, values.data(), values.size() * sizeof(float));
      ASSERT_THAT(host->Ready(index), IsOk());
      const bool in_own = (t + static_cast<size_t>(step)) % 2 == 0;
      const TensorView to = in_own ? own_[t].view : gpu->gradient(index);
      rank_.Put(to, values.data());
      ASSERT_THAT(in_own ? gpu->Ready(index, to) : gpu->Ready(index), IsOk());
    }
  }

  // Both have the same results.
  void Compare(Results* results = nullptr) {
    Results on_host, on_gpu;
    for (size_t t = 0; t < kShapes.size(); ++t) {
      const TensorView view = host->result(static_cast<int>(t));
      const auto* const values = static_cast<const float*>(view.data);
      on_host.emplace_back(values, values + view.count);
      on_gpu.emplace_back(static_cast<size_t>(view.count));
      rank_.Get(gpu->result(static_cast<int>(t)), on_gpu.back().data());
    }
    rank_.Settle(rank_.stream);
    for (size_t t = 0; t < kShapes.size(); ++t) {
      for (size_t i = 0; i < on_host[t].size(); ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(on_gpu[t][i]), std::bit_cast<uint32_t>(on_host[t][i]))
            << "gradient " << t << ", element " << i << ": " << on_gpu[t][i] << ", on the host " << on_host[t][i];
      }
    }
    if (results != nullptr) *results = std::move(on_gpu);
  }

  void Step(int64_t step, Results* results = nullptr) {
    ASSERT_NO_FATAL_FAILURE(Give(step));
    const auto of_host = host->Wait(), of_gpu = gpu->Wait();
    ASSERT_THAT(of_host, IsOk());
    ASSERT_THAT(of_gpu, IsOk());
    EXPECT_EQ(of_gpu->compressed_calls, of_host->compressed_calls);
    EXPECT_EQ(of_gpu->compressed_bytes > 0, of_gpu->compressed_calls > 0);
    Compare(results);
  }

  std::unique_ptr<GradientReducer> host, gpu;
  bool spoils = false;  // in each step another element of each gradient is infinite

 private:
  GpuRank& rank_;
  std::vector<GpuRank::Memory> own_;
  std::vector<std::unique_ptr<std::vector<float>>> kept_;
};

struct Case {
  std::string name;
  Compression compression;
};

const std::vector<Case> kCases = {
    {"Fp16", Fp16{}},
    {"Bf16", Bf16{}},
    {"Fp8", Fp8{}},
    {"Fp8E5M2", Fp8{Fp8::Format::kE5M2}},
    {"Int8", Int8{}},
    {"Int4", Int4{}},
    {"Sign", Sign{}},
    {"Ternary", Ternary{.seed = 5}},
    {"TopK", TopK{.sparsity = 0.9}},
    {"TopKOfAll", TopK{.sparsity = 0, .values = ValueType::kBF16}},
    {"TopKInHalves", TopK{.sparsity = 0.95, .values = ValueType::kF16}},
    {"TopKSampled", TopK{.sparsity = 0.9, .sampled = true}},
    {"TopKSampledInHalves", TopK{.sparsity = 0.99, .sampled = true, .values = ValueType::kF16}},
    {"TopKSampledOfAll", TopK{.sparsity = 0, .sampled = true}},
    {"TopKSampledGlobal", TopK{.sparsity = 0.9, .sampled = true, .values = ValueType::kBF16, .global = true}},
    {"RandomK", RandomK{.sparsity = 0.9, .seed = 7}},
    {"PowerSgd", PowerSgd{.rank = 1}},
    {"PowerSgdOfTwo", PowerSgd{.rank = 2}},
    {"PowerSgdOfMany", PowerSgd{.rank = 20}},  // which thins but one of the gradients
    {"Dgc", Dgc{.sparsity = 0.9}},
    {"DgcInBrains", Dgc{.sparsity = 0.97, .values = ValueType::kBF16}},
    {"DgcNesterov", Dgc{.sparsity = 0.9, .nesterov = true, .factor_masking = false}},
    // Among three ranks dense at first, then of 12 % and of 10 %.
    {"DgcWarmsUp", Dgc{.sparsity = 0.9, .values = ValueType::kF16, .warmup = {0.5, 0.88}, .warmup_steps = 2}},
    {"DgcDense", Dgc{.sparsity = 0}},
    // Norms of 8 and more, of which 6 / sqrt(ranks) is left.
    {"DgcClips", Dgc{.sparsity = 0.9, .clip = 6}},
    {"DgcClipsDense", Dgc{.sparsity = 0, .nesterov = true, .clip = 6}},
    {"TopKGlobal", TopK{.sparsity = 0.9, .global = true}},
    {"TopKGlobalOfAll", TopK{.sparsity = 0, .global = true}},
    {"TopKGlobalInHalves", TopK{.sparsity = 0.95, .values = ValueType::kF16, .global = true}},
    {"DgcGlobal", Dgc{.sparsity = 0.9, .global = true}},
    {"DgcGlobalInBrains", Dgc{.sparsity = 0.97, .nesterov = true, .values = ValueType::kBF16, .global = true}},
    {"DgcGlobalUnmasked", Dgc{.sparsity = 0.9, .factor_masking = false, .values = ValueType::kF16, .global = true}},
    {"DgcGlobalWarmsUp", Dgc{.sparsity = 0.95, .global = true, .clip = 6, .warmup = {0.2, 0.75}, .warmup_steps = 2}},
    {"DgcMayRefuse", Dgc{.sparsity = 0.9, .clip = 100, .non_finite = Dgc::NonFinite::kRefuse}},
};

// Whether a step's results go by its number, or by what of the steps before is not saved: lots, samples, warm-ups,
// regions, and PowerSgd's Qs.
bool GoesByItsPlace(const Compression& compression) {
  const auto* const dgc = std::get_if<Dgc>(&compression);
  const auto* const top = std::get_if<TopK>(&compression);
  return std::holds_alternative<Ternary>(compression) || std::holds_alternative<RandomK>(compression) ||
         std::holds_alternative<PowerSgd>(compression) || (top != nullptr && (top->sampled || top->global)) ||
         (dgc != nullptr && (dgc->warmup_steps > 0 || dgc->global));
}

class GpuCompressionTest : public testing::TestWithParam<Case> {};

TEST_P(GpuCompressionTest, IsTheHostsToTheBit) {
  for (const HostSizes& hosts : {HostSizes{3}, HostSizes{1, 1}}) {
    RunOnGpus(hosts, 3, [](GpuRank& rank) {
      Twins twins(rank);
      ASSERT_THAT(twins.Start({.prescale = 0.5,
                               .postscale = 2.7,
                               .bucket_bytes = 9000,
                               .compression = GetParam().compression,
                               .always_compress = true}),
                  IsOk());
      for (int64_t step = 1; step <= 6; ++step) ASSERT_NO_FATAL_FAILURE(twins.Step(step));
      EXPECT_EQ(twins.gpu->carries_momentum(0), twins.host->carries_momentum(0));
      EXPECT_TRUE(twins.gpu->SaveCompression() == twins.host->SaveCompression());
    });
  }
}

// What a reducer has kept on the one goes on on the other.
TEST_P(GpuCompressionTest, GoesOnFromItsStateOnEither) {
  RunOnGpus({2}, 4, [](GpuRank& rank) {
    const ReducerOptions options{.compression = GetParam().compression, .always_compress = true};
    Twins first(rank), second(rank);
    ASSERT_THAT(first.Start(options), IsOk());
    for (int64_t step = 1; step <= 3; ++step) ASSERT_NO_FATAL_FAILURE(first.Step(step));
    const std::vector<std::byte> saved = first.gpu->SaveCompression();
    ASSERT_FALSE(saved.empty());
    ASSERT_THAT(second.Start(options), IsOk());
    const std::span<const std::byte> damaged[] = {std::span(saved).first(saved.size() - 1)};
    EXPECT_THAT(second.gpu->RestoreCompression(damaged), MatchesStatus(StatusCode::kDataLoss, "checksum"));
    const std::span<const std::byte> all[] = {saved};
    ASSERT_THAT(second.gpu->RestoreCompression(all), IsOk());
    ASSERT_THAT(second.host->RestoreCompression(all), IsOk());
    EXPECT_TRUE(second.gpu->SaveCompression() == saved);
    Results went_on, began_anew;
    ASSERT_NO_FATAL_FAILURE(first.Step(4, &went_on));
    ASSERT_NO_FATAL_FAILURE(second.Step(4, &began_anew));
    if (!GoesByItsPlace(GetParam().compression)) {
      EXPECT_EQ(went_on, began_anew);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Codecs, GpuCompressionTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(GpuCompression, MicroBatchesAddUpFirst) {
  for (const Compression& compression :
       {Compression(Int8{}), Compression(PowerSgd{.rank = 2}), Compression(Dgc{.sparsity = 0.9}),
        Compression(Dgc{.sparsity = 0.9, .clip = 6}), Compression(Dgc{.sparsity = 0.9, .global = true})}) {
    RunOnGpus({2}, 6, [&](GpuRank& rank) {
      Twins twins(rank);
      ASSERT_THAT(twins.Start({.accumulate = 2, .compression = compression, .always_compress = true}), IsOk());
      for (int64_t step = 1; step <= 3; ++step) {
        ASSERT_NO_FATAL_FAILURE(twins.Give(2 * step));
        ASSERT_THAT(twins.host->Wait(), IsOk());
        ASSERT_THAT(twins.gpu->Wait(), IsOk());
        ASSERT_NO_FATAL_FAILURE(twins.Step(2 * step + 1));
      }
    });
  }
}

TEST(GpuCompression, WhatIsDroppedIsNotInTheNorm) {
  RunOnGpus({2}, 8, [](GpuRank& rank) {
    Twins twins(rank);
    twins.spoils = rank.rank == 1;
    ASSERT_THAT(twins.Start({.compression = Dgc{.sparsity = 0.9, .clip = 6}, .always_compress = true}), IsOk());
    for (int64_t step = 1; step <= 3; ++step) ASSERT_NO_FATAL_FAILURE(twins.Step(step));
    EXPECT_TRUE(twins.gpu->SaveCompression() == twins.host->SaveCompression());
  });
}

// What becomes of it is for the model to say; whatever it says, nothing is lost, and all ranks have the same.
TEST(GpuCompression, ByCostAllRanksDoTheSame) {
  for (const Compression& compression :
       {Compression(Int8{}), Compression(PowerSgd{.rank = 2}), Compression(Dgc{.sparsity = 0.9, .momentum = 0})}) {
    RunOnGpus({1, 1}, 7, [&](GpuRank& rank) {
      auto reducer = *GradientReducer::Create(rank.world(), {.compression = compression});
      ASSERT_THAT(reducer->Register("layer", kShapes[0], DType::kF32, rank.device()), IsOk());
      ASSERT_THAT(reducer->Start(), IsOk());
      std::vector<float> values(static_cast<size_t>(CountOf(kShapes[0])));
      for (int64_t step = 1; step <= 3; ++step) {
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] = GradientOf(rank.rank, 0, static_cast<int64_t>(i), step);
        }
        rank.Put(reducer->gradient(0), values.data());
        ASSERT_THAT(reducer->Ready(0), IsOk());
        const auto summary = reducer->Wait();
        ASSERT_THAT(summary, IsOk());
        EXPECT_EQ(summary->compression, CompressionUse::kByCost);
        rank.Get(reducer->result(0), values.data());
        rank.Settle(rank.stream);
        std::vector<float> root = values;
        ASSERT_THAT(rank.world().Broadcast(root, 0), IsOk());
        ASSERT_EQ(root, values);
      }
    });
  }
}

TEST(GpuCompression, GoesDenseWithinAHostUnlessForced) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    Twins twins(rank);
    ASSERT_THAT(twins.Start({.compression = Dgc{}}), IsOk());
    ASSERT_NO_FATAL_FAILURE(twins.Step(1));
    EXPECT_TRUE(twins.gpu->SaveCompression().empty());
  });
}

// Of PowerSgd it reaches all ranks, and what is kept, and the next steps, are as on the host.
TEST(GpuCompression, PowerSgdForgetsWhatIsNotFinite) {
  RunOnGpus({2}, 9, [](GpuRank& rank) {
    Twins twins(rank);
    ASSERT_THAT(twins.Start({.compression = PowerSgd{.rank = 2}, .always_compress = true}), IsOk());
    for (int64_t step = 1; step <= 5; ++step) {
      twins.spoils = step == 2 && rank.rank == 1;
      ASSERT_NO_FATAL_FAILURE(twins.Give(step));
      ASSERT_THAT(twins.host->Wait(), IsOk());
      ASSERT_THAT(twins.gpu->Wait(), IsOk());
      EXPECT_TRUE(twins.gpu->SaveCompression() == twins.host->SaveCompression()) << step;
      if (step == 2) continue;
      ASSERT_NO_FATAL_FAILURE(twins.Compare());
    }
  });
}

TEST(GpuCompression, NotFiniteIsSkippedByAllAlike) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    auto reducer = *GradientReducer::Create(rank.world(),
                                            {.skip_non_finite = true, .compression = Int4{}, .always_compress = true});
    ASSERT_THAT(reducer->Register("layer", kShapes[0], DType::kF32, rank.device()), IsOk());
    ASSERT_THAT(reducer->Start(), IsOk());
    for (const bool finite : {false, true}) {
      std::vector<float> values(static_cast<size_t>(CountOf(kShapes[0])), 1.0f);
      if (!finite && rank.rank == 1) values[5] = std::numeric_limits<float>::quiet_NaN();
      rank.Put(reducer->gradient(0), values.data());
      ASSERT_THAT(reducer->Ready(0), IsOk());
      const auto summary = reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      EXPECT_EQ(summary->skipped, !finite);
      rank.Settle(rank.stream);
    }
  });
}

}  // namespace
}  // namespace gyre
