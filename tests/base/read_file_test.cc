#include "base/read_file.h"

#include <fstream>

#include "gtest/gtest.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre {
namespace {

TEST(ReadFile, ReadsAllOrSaysWhyNot) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "file", text(100'000, 't');
  std::ofstream(path) << text;
  EXPECT_EQ(*ReadFile(path, text.size()), text);
  EXPECT_EQ(ReadFile(path, text.size() - 1).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(ReadFile(folder.path() / "none", 1), support::MatchesStatus(absl::StatusCode::kNotFound, "none: "));
  EXPECT_FALSE(ReadFile("/", 1).ok());
  EXPECT_EQ(*ReadFile("/dev/null", 1), "");
  EXPECT_FALSE(ReadFile("/dev/zero", 1 << 20).ok());
}

}  // namespace
}  // namespace gyre
