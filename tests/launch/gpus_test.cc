// GPUs by a library that the test made (fake_nvml.cc). It is loaded by its path here, after which its name finds it.
#include "launch/gpus.h"

#include <dlfcn.h>

#include <fstream>

#include "gtest/gtest.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::launch {

namespace {

using support::IsOk;
using support::MatchesStatus;

constexpr uint64_t kGiB = uint64_t{1} << 30;

class GpusTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(library_, nullptr) << dlerror(); }
  void TearDown() override {
    unsetenv("FAKE_NVML");
    unsetenv("FAKE_NVML_FAILS");
    dlclose(library_);
  }
  void Processes(const std::string& lines) const {
    const std::string path = folder_.path() / "processes";
    std::ofstream(path) << lines;
    setenv("FAKE_NVML", path.c_str(), 1);
  }

  void* const library_ = dlopen(FAKE_NVML_PATH, RTLD_NOW | RTLD_LOCAL);
  const support::TemporaryDirectory folder_;
};

TEST_F(GpusTest, WhatTheDriverIs) {
  const auto gpus = Gpus::Open();
  ASSERT_THAT(gpus, IsOk());
  EXPECT_EQ((*gpus)->count(), 2);
  EXPECT_EQ((*gpus)->driver(), "550.54.15");
  EXPECT_EQ((*gpus)->cuda(), "12.4");
  setenv("FAKE_NVML_FAILS", "1", 1);
  EXPECT_THAT(Gpus::Open(), MatchesStatus(absl::StatusCode::kUnavailable, "finds no driver (error 9)"));
}

TEST_F(GpusTest, OfEachTreeOfProcesses) {
  Processes("0 11 1000 50\n0 12 500 20\n1 12 300 10\n1 99 7 90\n");
  const auto gpus = Gpus::Open(/*knows_processes=*/true);
  ASSERT_THAT(gpus, IsOk());
  const auto usage = (*gpus)->Look({{11}, {12, 13}, {14}, {}}, {0, 1, 2, 3});
  ASSERT_EQ(usage.size(), 4u);
  EXPECT_DOUBLE_EQ(usage[0]->gpus, 0.5);
  EXPECT_EQ(usage[0]->memory, 1000u);
  EXPECT_DOUBLE_EQ(usage[1]->gpus, 0.3);
  EXPECT_EQ(usage[1]->memory, 800u);
  EXPECT_EQ(usage[2]->memory, 0u);  // it is known to have none
  EXPECT_EQ(usage[3]->gpus, 0);
}

TEST_F(GpusTest, WhereProcessesAreNotKnownDevicesAreTheirsByNumber) {
  Processes("0 99 1000 50\n");
  const auto gpus = Gpus::Open(/*knows_processes=*/false);
  ASSERT_THAT(gpus, IsOk());
  const auto usage = (*gpus)->Look({{11}, {12}, {13}}, {1, 0, 2});
  EXPECT_DOUBLE_EQ(usage[0]->gpus, 0.2);
  EXPECT_EQ(usage[0]->memory, 2 * kGiB);
  EXPECT_EQ(usage[1]->memory, kGiB);
  EXPECT_FALSE(usage[2]);  // there are two
  // Those of other jobs are nobody's where processes are known.
  EXPECT_EQ((*Gpus::Open(true))->Look({{11}}, {0})[0]->memory, 0u);
  // Whom the driver does know counts by that.
  EXPECT_EQ((*gpus)->Look({{99}, {12}}, {0, 1})[1]->memory, 0u);
}

}  // namespace

// Without it, there is none: unless this machine has one.
TEST(NoGpusTest, IsSaid) {
  void* const real = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (real != nullptr) {
    dlclose(real);
    GTEST_SKIP() << "this machine has a libnvidia-ml.so.1";
  }
  EXPECT_THAT(Gpus::Open(), MatchesStatus(absl::StatusCode::kUnavailable, "there is no libnvidia-ml.so.1"));
}

}  // namespace gyre::launch
