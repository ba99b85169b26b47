#include "launch/termination_log.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"

namespace gyre::launch {

namespace {

constexpr size_t kMostLogBytes = 4096;

}  // namespace

void WriteTerminationLog(const std::string& path, std::string_view text) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_TRUNC | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return;
  const std::string_view part = text.substr(0, kMostLogBytes);
  [[maybe_unused]] const ssize_t written = write(fd.get(), part.data(), part.size());
}

}  // namespace gyre::launch
