// What CUDA's calls leave behind on the threads that make them: for a real GPU alone.
#include <dlfcn.h>

#include <thread>

#include "absl/cleanup/cleanup.h"
#include "device/gpu_under_test.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::device {
namespace {

using support::IsOk;

// The driver's cuCtxGetCurrent: 0 is success.
using GetCurrent = int (*)(void** context);

TEST(CallsOnCuda, AThreadThatChoseNoGpuHasNoneAfterwards) {
  auto opened = OpenGpuUnderTest("cuda");
  if (absl::IsUnavailable(opened.status())) GTEST_SKIP() << opened.status().message();
  ASSERT_THAT(opened, IsOk());
  const std::unique_ptr<Gpu> gpu = *std::move(opened);
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(driver, nullptr);
  const absl::Cleanup close = [driver] { dlclose(driver); };
  const auto get_current = reinterpret_cast<GetCurrent>(dlsym(driver, "cuCtxGetCurrent"));
  ASSERT_NE(get_current, nullptr);
  std::thread([&] {
    for (int i = 0; i < 2; ++i) {
      const auto memory = gpu->Allocate(1000);
      ASSERT_THAT(memory, IsOk());
      EXPECT_THAT(gpu->Zero(*memory, 1000, nullptr), IsOk());
      EXPECT_THAT(gpu->Synchronize(nullptr), IsOk());
      gpu->Free(*memory);
      void* context = nullptr;
      ASSERT_EQ(get_current(&context), 0);
      EXPECT_EQ(context, nullptr);
    }
  }).join();
}

}  // namespace
}  // namespace gyre::device
