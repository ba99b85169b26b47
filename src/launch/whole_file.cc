#include "launch/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/fd.h"
#include "base/status.h"

namespace gyre::launch {

absl::Status WriteWholeFile(const std::string& path, std::string_view text) {
  const std::string next = path + ".new";
  const UniqueFd fd(open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) return ErrnoStatus(path);
  while (!text.empty()) {
    const ssize_t count = write(fd.get(), text.data(), text.size());
    if (count < 0 && errno != EINTR) return ErrnoStatus(path);
    if (count > 0) text.remove_prefix(static_cast<size_t>(count));
  }
  return rename(next.c_str(), path.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus(path);
}

}  // namespace gyre::launch
