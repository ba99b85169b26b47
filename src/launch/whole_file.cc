#include "launch/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/fd.h"
#include "base/status.h"

namespace gyre::launch {

namespace {

absl::Status WriteAll(const UniqueFd& fd, const std::string& path, std::string_view text) {
  if (!fd) return ErrnoStatus(path);
  while (!text.empty()) {
    const ssize_t count = write(fd.get(), text.data(), text.size());
    if (count < 0 && errno != EINTR) return ErrnoStatus(path);
    if (count > 0) text.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteWholeFile(const std::string& path, std::string_view text) {
  std::error_code error;
  const std::filesystem::path end_of_links = std::filesystem::canonical(path, error);
  const std::string file = error ? path : end_of_links.string();
  // A pipe or a terminal has readers that would keep what was there before the renaming. A pipe may have none: then
  // there is nobody to wait for.
  const std::filesystem::file_status there = std::filesystem::status(file, error);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
    return WriteAll(UniqueFd(open(file.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)), path, text);
  }
  const std::string next = file + ".new";
  RETURN_IF_ERROR(WriteAll(UniqueFd(open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)), path, text));
  return rename(next.c_str(), file.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus(path);
}

}  // namespace gyre::launch
