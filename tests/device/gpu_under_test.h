// Which GPUs this build's tests know.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "device/gpu.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::device {

// "fake" or "cuda". kUnavailable, with the reason, where it is not to be had, for which tests are skipped; not where
// libgyre_cuda was built, and does not load, nor where GYRE_TEST_NEEDS_GPU says that there is a GPU (scripts/test-gpu).
absl::StatusOr<std::unique_ptr<Gpu>> OpenGpuUnderTest(std::string_view kind);

// Whether libgyre_cuda.so is there: what nvcc compiles is built by scripts/test --all alone.
bool CudaModuleIsBuilt();

inline std::vector<uint32_t> BitsOf(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

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

  // Memory on the GPU with these elements, `offset` elements behind an aligned place. It and what follows wait.
  template <typename T>
  T* Put(const std::vector<T>& elements, size_t offset = 0) {
    const auto memory = gpu_->Allocate(static_cast<int64_t>((elements.size() + offset) * sizeof(T)));
    EXPECT_TRUE(memory.ok()) << memory.status();
    allocated_.push_back(*memory);
    T* const at = static_cast<T*>(*memory) + offset;
    Set(at, elements);
    return at;
  }

  template <typename T>
  void Set(T* at, const std::vector<T>& elements) {
    const auto bytes = static_cast<int64_t>(elements.size() * sizeof(T));
    EXPECT_THAT(gpu_->Copy(at, elements.data(), bytes, nullptr), support::IsOk());
    EXPECT_THAT(gpu_->Synchronize(nullptr), support::IsOk());
  }

  template <typename T>
  std::vector<T> Get(const T* from, size_t count) {
    std::vector<T> got(count);
    EXPECT_THAT(gpu_->Copy(got.data(), from, static_cast<int64_t>(count * sizeof(T)), nullptr), support::IsOk());
    EXPECT_THAT(gpu_->Synchronize(nullptr), support::IsOk());
    return got;
  }

  std::shared_ptr<Gpu> gpu_;
  std::vector<void*> allocated_;  // freed at the end
};

}  // namespace gyre::device
