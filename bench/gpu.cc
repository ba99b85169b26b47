#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "commands.h"

namespace gyre::bench {

absl::Status RunGpu(const std::vector<std::string>& arguments) {
  std::array<char, 4096> self = {};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) {
    return absl::ErrnoToStatus(errno, "finding this program's folder");
  }
  const std::string path = absl::StrCat(self.data(), "-gpu");
  if (access(path.c_str(), X_OK) != 0) {
    return absl::UnimplementedError(
        absl::StrCat("there is no ", path, ": it is built where CUDA's compiler is, 12.0 or later, and no sanitizer"));
  }
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  return absl::ErrnoToStatus(errno, absl::StrCat("starting ", path));
}

}  // namespace gyre::bench
