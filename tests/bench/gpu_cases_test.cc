// The cases of `gyre-bench gpu kernels`, a thousandth as large as they are measured: on the fake GPU and, where there
// is one, on a real one.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "device/gpu_under_test.h"
#include "gmock/gmock.h"
#include "gpu/cases.h"
#include "gtest/gtest.h"
#include "models/model.h"
#include "support/status_matchers.h"

namespace gyre::bench::gpu {
namespace {

using support::IsOk;
using support::MatchesStatus;
using ::testing::HasSubstr;

class GpuCasesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto opened = device::OpenGpuUnderTest(GetParam());
    if (absl::IsUnavailable(opened.status())) GTEST_SKIP() << opened.status().message();
    ASSERT_THAT(opened, IsOk());
    gpu_ = *std::move(opened);
    const auto stream = gpu_->CreateStream();
    ASSERT_THAT(stream, IsOk());
    stream_ = *stream;
    cases_ = std::make_unique<Cases>(*gpu_, stream_, 1024);
    ASSERT_THAT(AddAll(*cases_), IsOk());
  }

  void TearDown() override {
    cases_.reset();
    if (stream_ != nullptr) gpu_->DestroyStream(stream_);
  }

  std::unique_ptr<device::Gpu> gpu_;
  device::Gpu::Stream stream_ = nullptr;
  std::unique_ptr<Cases> cases_;
};

// Also after all others have been run.
TEST_P(GpuCasesTest, MakeWhatTheHostMakes) {
  for (int round = 0; round < 2; ++round) {
    for (const Case& each : cases_->all()) {
      EXPECT_THAT(each.check(each.run), IsOk()) << each.name;
    }
  }
}

TEST_P(GpuCasesTest, ChecksSeeWhatFailedWasNotDoneOrDoneTwice) {
  for (const Case& each : cases_->all()) {
    const auto failing = [] { return absl::AbortedError("the GPU's words"); };
    EXPECT_THAT(each.check(failing), MatchesStatus(absl::StatusCode::kAborted, "the GPU's words")) << each.name;
    const auto nothing = [] { return absl::OkStatus(); };
    EXPECT_THAT(each.check(nothing), MatchesStatus(absl::StatusCode::kDataLoss, "")) << each.name;
    const auto twice = [&] {
      absl::Status ran = each.run();
      ran.Update(each.run());
      return ran;
    };
    const bool reads_other_memory = each.group == "packing" || each.name.find(" to 1,") != std::string::npos ||
                                    each.name.find("Q = M^T P") != std::string::npos;
    if (reads_other_memory) {
      EXPECT_THAT(each.check(twice), IsOk()) << each.name;
    } else {
      EXPECT_THAT(each.check(twice), MatchesStatus(absl::StatusCode::kDataLoss, "")) << each.name;
    }
  }
}

// What a step chooses of has changed then: what is computed of it is not what came before.
TEST_P(GpuCasesTest, ARefreshChangesWhatIsRunOn) {
  int refreshed = 0, counted = 0;
  for (const Case& each : cases_->all()) {
    if (each.rescans) {
      ++counted;
      EXPECT_THAT(each.rescans(), IsOk()) << each.name;
    }
    if (!each.refresh) continue;
    ++refreshed;
    ASSERT_THAT(each.refresh(), IsOk()) << each.name;
    EXPECT_THAT(each.check(each.run), IsOk()) << each.name;
    const auto meanwhile = [&] {
      absl::Status ran = each.refresh();
      ran.Update(each.run());
      return ran;
    };
    EXPECT_THAT(each.check(meanwhile), MatchesStatus(absl::StatusCode::kDataLoss, "")) << each.name;
  }
  EXPECT_EQ(refreshed, 9);
  EXPECT_EQ(counted, 6);
}

TEST_P(GpuCasesTest, AreChosenByNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Case& each : cases_->all()) {
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    EXPECT_LE(each.name.size(), 48u) << each.name;  // their column
  }
  const auto updates = Choose(*cases_, "update, ");
  ASSERT_THAT(updates, IsOk());
  EXPECT_EQ(updates->size(), 5u);
  for (const Case* const each : *updates) EXPECT_THAT(each->name, HasSubstr("update, "));
  const auto all = Choose(*cases_, "");
  ASSERT_THAT(all, IsOk());
  EXPECT_EQ(all->size(), cases_->all().size());
  EXPECT_THAT(Choose(*cases_, "nonsense"), MatchesStatus(absl::StatusCode::kInvalidArgument, "\"nonsense\""));
}

// Of one case of each way to count, by hand: what is read and what is written, in bytes an element.
TEST_P(GpuCasesTest, BytesAreThoseThatHaveToMove) {
  std::map<std::string, int64_t> bytes;
  for (const Case& each : cases_->all()) bytes[each.name] = each.bytes;
  const auto model = MakeModel("resnet50");
  ASSERT_THAT(model, IsOk());
  int64_t parameters = 0;
  for (const Parameter& parameter : model->parameters) {
    parameters += std::max<int64_t>(parameter.count() / 1024, 1);
  }
  constexpr int64_t kBuffer = 256 << 10, kDense = 64 << 10, kBlocks = kDense / 256;
  constexpr int64_t kChosen = 25'000, kFew = 25, kMany = 2'500;  // elements, and how many of them are sent
  constexpr int64_t kFewBytes = 12 + 12 + 2 + kFew * 2;          // two headers, a count, places in a block
  constexpr int64_t kManyBytes = 12 + 12 + 3'125;                // two headers, a bit an element
  constexpr int64_t kFactors = 64 * 4 * 4 + 1024 * 4 * 4;        // of a matrix of 64 x 1024, of rank 4
  const std::map<std::string, int64_t> expected = {
      {"pack 161 tensors, f32 to f32", parameters * (4 + 4)},
      {"unpack 161 tensors, f32 from bf16", parameters * (2 + 4)},
      {"pack 161 tensors, f32 to bf16, scaled", parameters * (4 + 2)},
      {"reduce 2 to 1, f32", 3 * kBuffer},
      {"reduce 4 to 4, u8", 8 * kBuffer},
      {"finite check, bf16", kBuffer},
      {"squares, f32", kBuffer},
      {"update, SGD", 3 * kBuffer},       // reads w and g, writes w
      {"update, momentum", 5 * kBuffer},  // and reads and writes v
      {"update, Nesterov", 5 * kBuffer},
      {"update, Adam", 7 * kBuffer},  // m and v
      {"update, Adagrad", 5 * kBuffer},
      {"quantise to f32, keeping what is lost", kDense * (4 + 4 + 4 + 4)},
      {"quantise to bf16, keeping what is lost", kDense * (4 + 4 + 4 + 2)},
      {"quantise to fp8-e5m2, keeping what is lost", kDense * (4 + 4 + 4 + 1) + kBlocks * 4},
      {"quantise to ternary, keeping what is lost", kDense * (4 + 4 + 4) + kDense / 4 + kBlocks * 4},
      {"add up from f32", kDense * (4 + 4 + 4)},
      {"add up from sign", kDense * (4 + 4) + kDense / 8 + kBlocks * 4},
      {"DGC step, 99.9 %, f32, 25.6 M elements", kChosen * (4 + 8 + 8)},
      {"DGC step, 99.9 %, f32, 256.0 M elements", 10 * kChosen * (4 + 8 + 8)},
      {"DGC step, 99.9 %, f16, 25.6 M elements", kChosen * (2 + 8 + 8)},
      {"DGC step, 99.9 %, bf16, 25.6 M elements", kChosen * (2 + 8 + 8)},
      {"DGC, only accumulating, f32, 25.6 M elements", kChosen * (4 + 8 + 8)},
      {"topk step, 99.9 %, f32, 25.6 M elements", kChosen * (4 + 8)},
      {"topk, only accumulating, f32, 25.6 M elements", kChosen * (4 + 8)},
      {"topk-sampled step, 99.9 %, f32, 25.6 M elements", kChosen * (4 + 8)},
      {"encode 0.1 % in blocks of 25.6 M elements, f32", kFewBytes + kFew * (4 + 4 + 4 + 4)},
      {"encode 0.1 % in blocks of 25.6 M elements, f16", kFewBytes + kFew * (4 + 4 + 4 + 4 + 2)},
      {"add up 0.1 % in blocks of 25.6 M elements, f32", kFewBytes + kFew * (4 + 8)},
      {"encode 10 % as bitmaps of 25.6 M elements, f32", kManyBytes + kMany * (4 + 4 + 4 + 4)},
      {"encode 10 % as bitmaps of 25.6 M elements, f16", kManyBytes + kMany * (4 + 4 + 4 + 4 + 2)},
      {"add up 10 % as bitmaps of 25.6 M elements, f16", kManyBytes + kMany * (2 + 8)},
      {"PowerSGD, rank 4, P = M Q", 3 * kBuffer + kFactors},  // reads the gradient, reads and writes what is kept
      {"PowerSGD, rank 4, Q = M^T P", kBuffer + kFactors},
      {"PowerSGD, rank 4, P Q^T and what is kept", 3 * kBuffer + kFactors},  // writes results
  };
  for (const auto& [name, count] : expected) {
    ASSERT_TRUE(bytes.contains(name)) << name;
    EXPECT_EQ(bytes[name], count) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuCasesTest, ::testing::Values("fake", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gyre::bench::gpu
