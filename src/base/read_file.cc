#include "base/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "base/status.h"

namespace gyre {

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(path);
  std::string text;
  std::array<char, 16384> buffer;
  while (true) {
    const ssize_t count = read(fd.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(path);
    if (count == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(count));
    if (text.size() > most) return absl::OutOfRangeError(absl::StrCat(path, ": has more than ", most, " bytes"));
  }
}

}  // namespace gyre
