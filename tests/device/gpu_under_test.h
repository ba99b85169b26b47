// Which GPUs this build's tests know.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "device/gpu.h"

namespace gyre::device {

// "fake" or "cuda". kUnavailable, with the reason, where it is not to be had, for which tests are skipped; not where
// libgyre_cuda was built, and does not load, nor where GYRE_TEST_NEEDS_GPU says that there is a GPU (scripts/test-gpu).
absl::StatusOr<std::unique_ptr<Gpu>> OpenGpuUnderTest(std::string_view kind);

// A test on each of them.
class GpuUnderTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto opened = OpenGpuUnderTest(GetParam());
    if (absl::IsUnavailable(opened.status())) GTEST_SKIP() << opened.status().message();
    ASSERT_TRUE(opened.ok()) << opened.status();
    gpu_ = *std::move(opened);
  }

  void TearDown() override {
    for (void* memory : allocated_) gpu_->Free(memory);
  }

  std::shared_ptr<Gpu> gpu_;
  std::vector<void*> allocated_;  // freed at the end
};

}  // namespace gyre::device
