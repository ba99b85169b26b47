// The example torch_cnn, as a program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "support/program.h"

namespace gyre {
namespace {

using testing::HasSubstr;

struct Ending {
  int exit_code;
  std::string out, err;
};

Ending TorchCnn(int ranks, const std::vector<std::string>& options) {
  std::vector<std::string> command = {GYRERUN_PATH, "-np", std::to_string(ranks), TORCH_CNN_PATH};
  command.insert(command.end(), options.begin(), options.end());
  support::Program program(command);
  EXPECT_TRUE(program.WaitFor(std::chrono::seconds(60))) << program.output();
  return {program.exit_code().value_or(-1), program.out(), program.err()};
}

TEST(TorchCnn, LearnsOnTwoRanks) {
  const Ending ending = TorchCnn(2, {"--steps", "60", "--noise", "0.5", "--test-images", "301"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("replicas identical"));
  float first = 0, last = 0, accuracy = 0;
  const size_t at = ending.out.find("torch_cnn: ");
  ASSERT_NE(at, std::string::npos) << ending.out;
  ASSERT_EQ(std::sscanf(ending.out.c_str() + at, "torch_cnn: 2 ranks, loss %f to %f, accuracy %f %%", &first, &last,
                        &accuracy),
            3)
      << ending.out;
  EXPECT_LT(last, 0.7f * first);
  EXPECT_GT(accuracy, 30);  // chance: 10
}

TEST(TorchCnn, SaysWhatItTakes) {
  const Ending help = TorchCnn(1, {"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--steps"));
  EXPECT_EQ(TorchCnn(1, {"--step-size", "1"}).exit_code, 64);
  const Ending odd = TorchCnn(2, {"--batch", "7"});
  EXPECT_EQ(odd.exit_code, 1);
  EXPECT_THAT(odd.err, HasSubstr("--batch must be a multiple"));
}

}  // namespace
}  // namespace gyre
