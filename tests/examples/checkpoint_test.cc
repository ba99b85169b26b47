#include "checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/status_matchers.h"
#include "support/temporary.h"

namespace char_lm {
namespace {

using absl::StatusCode;
using gyre::support::IsOk;
using gyre::support::MatchesStatus;

class CheckpointTest : public testing::Test {
 protected:
  std::string Content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Overwrite(const std::string& content) const { std::ofstream(path_, std::ios::binary) << content; }

  const gyre::support::TemporaryDirectory folder_;
  const std::string path_ = folder_.path() / "state";
  const Checkpoint checkpoint_ = {.identity = "seed: 2\nbatch: 3\ncompression: none\n",
                                  .step = 77,
                                  .weights = {1.5f, -2.25f, 0.0f},
                                  .optimizer = {std::byte{9}, std::byte{0}, std::byte{255}, std::byte{1}, std::byte{2}},
                                  .compression = {{std::byte{3}}, {}, {std::byte{0}, std::byte{4}}}};
};

TEST_F(CheckpointTest, WhatWasWrittenIsRead) {
  ASSERT_THAT(WriteCheckpoint(path_, checkpoint_), IsOk());
  const auto read = ReadCheckpoint(path_);
  ASSERT_THAT(read, IsOk());
  EXPECT_THAT(CheckSame(read->identity, checkpoint_.identity), IsOk());
  EXPECT_EQ(read->step, checkpoint_.step);
  EXPECT_EQ(read->weights, checkpoint_.weights);
  EXPECT_EQ(read->optimizer, checkpoint_.optimizer);
  EXPECT_EQ(read->compression, checkpoint_.compression);
}

TEST_F(CheckpointTest, ReplacesTheOldOneAndLeavesNothingElse) {
  ASSERT_THAT(WriteCheckpoint(path_, checkpoint_), IsOk());
  Checkpoint later = checkpoint_;
  later.step = 78;
  ASSERT_THAT(WriteCheckpoint(path_, later), IsOk());
  EXPECT_EQ(ReadCheckpoint(path_)->step, 78);
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_.path())) ++files;
  EXPECT_EQ(files, 1);
}

TEST_F(CheckpointTest, DamageIsNoticed) {
  ASSERT_THAT(WriteCheckpoint(path_, checkpoint_), IsOk());
  const std::string good = Content();
  for (size_t length = 0; length < good.size(); ++length) {
    Overwrite(good.substr(0, length));
    ASSERT_THAT(ReadCheckpoint(path_), MatchesStatus(StatusCode::kDataLoss, path_)) << length;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 0x20;
    Overwrite(bad);
    ASSERT_THAT(ReadCheckpoint(path_), MatchesStatus(StatusCode::kDataLoss, path_)) << i;
  }
  Overwrite(good);
  EXPECT_THAT(ReadCheckpoint(path_), IsOk());
}

TEST_F(CheckpointTest, WhatCannotBeReadOrWrittenIsAnError) {
  EXPECT_THAT(ReadCheckpoint(path_), MatchesStatus(StatusCode::kNotFound, path_));
  EXPECT_FALSE(ReadCheckpoint(folder_.path()).ok());
  EXPECT_THAT(WriteCheckpoint(path_ + "/none/state", checkpoint_), MatchesStatus(StatusCode::kNotFound, "none"));
  std::filesystem::create_directory(path_);  // a folder stands where the file should go: the new one is taken back
  EXPECT_FALSE(WriteCheckpoint(path_, checkpoint_).ok());
  EXPECT_FALSE(CheckWritable(path_).ok());
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
}

TEST_F(CheckpointTest, TryingLeavesAllAsItWas) {
  EXPECT_THAT(CheckWritable(path_), IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  Overwrite("old");
  EXPECT_THAT(CheckWritable(path_), IsOk());
  EXPECT_EQ(Content(), "old");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
  std::filesystem::create_symlink(path_ + ".victim", path_ + ".tmp");
  EXPECT_THAT(CheckWritable(path_), IsOk());
  EXPECT_FALSE(std::filesystem::exists(path_ + ".victim")) << "a link is not followed";
  EXPECT_THAT(CheckWritable(folder_.path() / "none/state"), MatchesStatus(StatusCode::kNotFound, "none"));
}

TEST_F(CheckpointTest, AnotherTrainingIsNamed) {
  Identity other;
  AddFact(other, "seed", "12");
  AddFact(other, "batch", "3");
  AddFact(other, "compression", "topk of sparsity 0.9");
  AddFact(other, "rate", "0.5");
  EXPECT_THAT(
      CheckSame(checkpoint_.identity, other),
      MatchesStatus(StatusCode::kFailedPrecondition,
                    "compression none and not topk of sparsity 0.9, rate unknown and not 0.5, seed 2 and not 12"));
}

}  // namespace
}  // namespace char_lm
