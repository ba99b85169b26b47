#include "support/temporary.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <random>
#include <system_error>

#include "absl/strings/str_format.h"

namespace gyre::support {

std::string UniqueName(std::string_view prefix) {
  std::random_device random;
  return absl::StrFormat("%s-%d-%08x%08x", std::string(prefix), getpid(), random(), random());
}

std::filesystem::path MemoryFolder() {
  const std::filesystem::path memory = "/dev/shm";
  return access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

TemporaryDirectory::TemporaryDirectory(const std::filesystem::path& in) {
  std::string name = (in / "gyre-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    ADD_FAILURE() << "cannot make a folder like " << name;
    return;
  }
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  EXPECT_FALSE(error) << "cannot remove " << path_ << ": " << error.message();
}

}  // namespace gyre::support
