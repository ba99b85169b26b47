// What training through parameter servers learns.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "examples/servers_fixture.h"

namespace gyre {
namespace {

TEST_F(CharLmByServers, SynchronousTrainingAgreesWithAllReduce) {
  const double expected = BitsOf({}, {"--steps", "80"});
  EXPECT_LT(expected, 4);
  for (const char* servers : {"1", "3"}) {
    EXPECT_NEAR(BitsOf({"--servers", servers}, {"--steps", "80"}), expected, 1e-3 * expected) << servers;
  }
}

TEST_F(CharLmByServers, OtherConsistenciesLearnToo) {
  const std::vector<std::string> stale = {"--strategy", "ps", "--consistency", "ssp", "--staleness", "4"};
  const std::vector<std::string> loose = {"--strategy", "ps", "--consistency", "async"};
  for (std::vector<std::string> options : {stale, loose}) {
    for (const char* word : {"--steps", "80", "--lr", "0.002"}) options.emplace_back(word);
    EXPECT_LT(BitsOf({"--servers", "2"}, options), 4) << options[3];
  }
}

TEST_F(CharLmByServers, CompressedTrainingLearnsToo) {
  const double dense = BitsOf({"--servers", "2"}, {"--steps", "80", "--momentum"});
  EXPECT_LT(dense, 4);
  for (std::vector<std::string> options :
       {std::vector<std::string>{"--compression", "dgc", "--sparsity", "0.9"},
        {"--compression", "int8", "--values", "f16"},
        {"--compression", "topk", "--sparsity", "0.9", "--values", "int8", "--consistency", "ssp", "--lr", "0.1"}}) {
    const std::string name = options[1];
    for (const char* word : {"--strategy", "ps", "--steps", "80", "--momentum"}) options.emplace_back(word);
    const double bits = BitsOf({"--servers", "2"}, options);
    EXPECT_NEAR(bits, dense, 0.5) << name;
    EXPECT_NE(bits, dense) << name;
  }
}

}  // namespace
}  // namespace gyre
