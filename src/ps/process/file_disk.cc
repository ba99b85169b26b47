#include "ps/process/file_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/fd.h"
#include "base/status.h"

namespace gyre::ps {

namespace {

absl::Status SyncPath(const std::string& path, int flags) {
  const UniqueFd file(open(path.c_str(), flags | O_CLOEXEC));
  if (!file || fsync(file.get()) != 0) return ErrnoStatus(path);
  return absl::OkStatus();
}

}  // namespace

absl::Status FileDisk::Write(std::string_view name, std::string_view bytes) {
  const std::string path = PathOf(name);
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return ErrnoStatus(path);
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status FileDisk::Sync(std::string_view name) {
  return SyncPath(PathOf(name), O_RDONLY);
}

absl::Status FileDisk::Rename(std::string_view from, std::string_view to) {
  if (rename(PathOf(from).c_str(), PathOf(to).c_str()) != 0) return ErrnoStatus(PathOf(from));
  return absl::OkStatus();
}

absl::Status FileDisk::SyncFolder() {
  return SyncPath(folder_, O_RDONLY | O_DIRECTORY);
}

absl::StatusOr<std::string> FileDisk::Read(std::string_view name) {
  const std::string path = PathOf(name);
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT) return absl::NotFoundError(path);
  struct stat facts {};
  if (!file || fstat(file.get(), &facts) != 0) return ErrnoStatus(path);
  std::string bytes(static_cast<size_t>(facts.st_size), '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(path);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

absl::Status FileDisk::Remove(std::string_view name) {
  if (unlink(PathOf(name).c_str()) != 0 && errno != ENOENT) return ErrnoStatus(PathOf(name));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FileDisk::List() {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder_, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) return ErrnoStatus(folder_, error.value());
  return names;
}

}  // namespace gyre::ps
