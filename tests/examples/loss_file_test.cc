#include "loss_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "support/status_matchers.h"
#include "support/temporary.h"

namespace char_lm {
namespace {

using absl::StatusCode;
using gyre::support::IsOk;
using gyre::support::MatchesStatus;

class LossFileTest : public testing::Test {
 protected:
  std::string Content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Overwrite(const std::string& content) const { std::ofstream(path_, std::ios::binary) << content; }

  // Opens the file and adds the loss of the step after `last_step`.
  absl::Status GoOnAfter(int64_t last_step) const {
    LossFile file;
    const absl::Status status = file.Open(path_, last_step);
    return status.ok() ? file.Add(last_step + 1, 0.25) : status;
  }

  const gyre::support::TemporaryDirectory folder_;
  const std::string path_ = folder_.path() / "losses";
};

TEST_F(LossFileTest, ANewTrainingReplacesAnything) {
  Overwrite("whatever");
  EXPECT_THAT(GoOnAfter(0), IsOk());
  EXPECT_EQ(Content(), "1,0.25\n");
}

TEST_F(LossFileTest, StepsAfterTheCheckpointAreCutOff) {
  const std::string kept = "1,4.5\n2,3.25e-05\n";
  for (const char* rest : {"", "3,1\n", "3,1\n4,2\n10,3\n", "3,1\n4,2", "3", "3,1\n4,"}) {
    Overwrite(kept + rest);
    EXPECT_THAT(GoOnAfter(2), IsOk());
    EXPECT_EQ(Content(), kept + "3,0.25\n") << rest;
  }
}

TEST_F(LossFileTest, WithoutAFileItBeginsAtTheCheckpoint) {
  EXPECT_THAT(GoOnAfter(7), IsOk());
  EXPECT_EQ(Content(), "8,0.25\n");
}

TEST_F(LossFileTest, AnotherFileIsLeftAsItIs) {
  for (const char* other : {"notes\n", "1,4.5\nnotes\n2,3\n", "1;4.5\n", "1,4.5,6\n", "\n"}) {
    Overwrite(other);
    EXPECT_THAT(GoOnAfter(2), MatchesStatus(StatusCode::kFailedPrecondition, path_)) << other;
    EXPECT_EQ(Content(), other);
  }
}

TEST_F(LossFileTest, WhatCannotBeWrittenIsAnError) {
  LossFile none;
  EXPECT_THAT(none.Add(1, 2.0), IsOk());
  LossFile file;
  EXPECT_THAT(file.Open(path_ + "/none/losses", 0), MatchesStatus(StatusCode::kNotFound, "none"));
  EXPECT_THAT(file.Open(path_ + "/none/losses", 5), MatchesStatus(StatusCode::kNotFound, "none"));
  LossFile full;
  ASSERT_THAT(full.Open("/dev/full", 0), IsOk());
  EXPECT_THAT(full.Add(1, 2.0), MatchesStatus(StatusCode::kResourceExhausted, "/dev/full"));
}

}  // namespace
}  // namespace char_lm
