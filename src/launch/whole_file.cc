#include "launch/whole_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::launch {

namespace {

constexpr size_t kBuffered = size_t{64} << 10;  // bytes

absl::StatusOr<std::string> BesideName(const std::string& file) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) return ErrnoStatus("getrandom");
  return absl::StrCat(file, ".new-", absl::Hex(random, absl::kZeroPad16));
}

}  // namespace

absl::StatusOr<WholeFile> WholeFile::Open(const std::string& path) {
  WholeFile whole;
  whole.path_ = path;
  std::error_code error;
  const std::filesystem::path end_of_links = std::filesystem::canonical(path, error);
  whole.file_ = error ? path : end_of_links.string();
  // A pipe or a terminal has readers that would keep what was there before the renaming. A pipe may have none: then
  // there is nobody to wait for. A directory cannot be opened for writing.
  const std::filesystem::file_status there = std::filesystem::status(whole.file_, error);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
    whole.fd_.Reset(open(whole.file_.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  } else {
    ASSIGN_OR_RETURN(whole.beside_, BesideName(whole.file_));
    whole.fd_.Reset(open(whole.beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  }
  if (whole.fd_) return whole;
  const absl::Status failed = ErrnoStatus(path);
  whole.beside_.clear();  // it is not ours
  return failed;
}

WholeFile::~WholeFile() {
  if (fd_ && !beside_.empty()) unlink(beside_.c_str());
}

absl::Status WholeFile::Flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t count = write(fd_.get(), rest.data(), rest.size());
    if (count < 0 && errno != EINTR) return ErrnoStatus(path_);
    if (count > 0) rest.remove_prefix(static_cast<size_t>(count));
  }
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status WholeFile::Write(std::string_view text) {
  buffer_.append(text);
  return buffer_.size() < kBuffered ? absl::OkStatus() : Flush();
}

absl::Status WholeFile::Finish() {
  RETURN_IF_ERROR(Flush());
  if (beside_.empty()) return absl::OkStatus();
  if (rename(beside_.c_str(), file_.c_str()) != 0) return ErrnoStatus(path_);
  beside_.clear();
  return absl::OkStatus();
}

absl::Status WriteWholeFile(const std::string& path, std::string_view text) {
  ASSIGN_OR_RETURN(WholeFile whole, WholeFile::Open(path));
  RETURN_IF_ERROR(whole.Write(text));
  return whole.Finish();
}

}  // namespace gyre::launch
