#include "launch/program.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "support/temporary.h"

namespace gyre::launch {

namespace {

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"a", "b", "b/folder"}) std::filesystem::create_directory(dir_ + "/" + folder);
    Make("a/plain", 0644);
    Make("b/plain", 0755);
    Make("b/tool", 0755);
    Make("a/data", 0644);
  }

  void Make(const std::string& name, mode_t mode) const {
    std::ofstream(dir_ + "/" + name) << "#!/bin/sh\n";
    ASSERT_EQ(chmod((dir_ + "/" + name).c_str(), mode), 0);
  }
  absl::StatusOr<std::string> Find(const std::string& program) const {
    return FindProgram(program, dir_ + "/a:" + dir_ + "/none:" + dir_ + "/b");
  }

  const support::TemporaryDirectory folder_;
  const std::string dir_ = folder_.path();
};

TEST_F(ProgramTest, TheFirstExecutableAlongThePath) {
  EXPECT_EQ(*Find("tool"), dir_ + "/b/tool");
  EXPECT_EQ(*Find("plain"), dir_ + "/b/plain");
}

TEST_F(ProgramTest, ASlashMeansTheFileItself) {
  EXPECT_EQ(*Find(dir_ + "/b/tool"), dir_ + "/b/tool");
  EXPECT_TRUE(absl::IsNotFound(Find(dir_ + "/a/tool").status()));
}

TEST_F(ProgramTest, NotFoundIs127) {
  for (const char* name : {"nothing", "", "folder"}) {
    const auto found = Find(name);
    ASSERT_FALSE(found.ok()) << name;
    EXPECT_EQ(ExitCodeOf(found.status()), 127) << found.status();
    EXPECT_NE(found.status().message().find("; try: "), std::string::npos);
  }
}

TEST_F(ProgramTest, NotExecutableIs126) {
  for (const std::string& name : {std::string("data"), dir_ + "/a/plain", dir_ + "/b", std::string("/")}) {
    const auto found = Find(name);
    ASSERT_FALSE(found.ok()) << name;
    EXPECT_EQ(ExitCodeOf(found.status()), 126) << found.status();
    EXPECT_NE(found.status().message().find("; try: "), std::string::npos);
  }
}

}  // namespace

}  // namespace gyre::launch
