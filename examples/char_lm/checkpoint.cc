#include "checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include "absl/strings/str_cat.h"
#include "gyre/status_macros.h"
#include "xxhash.h"

namespace char_lm {

namespace {

constexpr uint64_t kMagic = 0x314d4c4345525947;  // "GYRECLM1"

class Writer {
 public:
  void Value(const auto& value) { Bytes(std::as_bytes(std::span(&value, 1))); }
  void Array(const auto& array) {
    const auto bytes = std::as_bytes(std::span(array));
    Value(static_cast<uint64_t>(bytes.size()));
    Bytes(bytes);
  }
  std::vector<std::byte> Finish() && {
    Value(static_cast<uint64_t>(XXH3_64bits(bytes_.data(), bytes_.size())));
    return std::move(bytes_);
  }

 private:
  void Bytes(std::span<const std::byte> bytes) {
    const size_t end = bytes_.size();
    bytes_.resize(end + bytes.size());
    if (!bytes.empty()) std::memcpy(&bytes_[end], bytes.data(), bytes.size());
  }

  std::vector<std::byte> bytes_;
};

// Every method says whether there was enough left.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> rest) : rest_(rest) {}

  bool Value(auto& value) { return Bytes(std::as_writable_bytes(std::span(&value, 1))); }
  template <typename T>
  bool Array(std::vector<T>& array) {
    uint64_t bytes = 0;
    if (!Value(bytes) || bytes > rest_.size() || bytes % sizeof(T) != 0) return false;
    array.resize(bytes / sizeof(T));
    return Bytes(std::as_writable_bytes(std::span(array)));
  }
  bool AtEnd() const { return rest_.empty(); }

 private:
  bool Bytes(std::span<std::byte> out) {
    if (out.size() > rest_.size()) return false;
    if (!out.empty()) std::memcpy(out.data(), rest_.data(), out.size());
    rest_ = rest_.subspan(out.size());
    return true;
  }

  std::span<const std::byte> rest_;
};

absl::Status FileError(const char* what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError("write", path);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return fsync(fd) == 0 ? absl::OkStatus() : FileError("sync", path);
}

absl::Status WriteNewFile(const std::string& path, std::span<const std::byte> bytes) {
  unlink(path.c_str());  // what a killed program left, or a link that somebody put there
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return FileError("create", path);
  absl::Status status = WriteAll(fd, bytes, path);
  if (close(fd) != 0) status.Update(FileError("close", path));
  return status;
}

std::string TemporaryOf(const std::string& path) {
  return absl::StrCat(path, ".tmp");
}

// Makes the renaming itself last.
absl::Status SyncDirectory(const std::string& path) {
  const std::string directory = std::filesystem::absolute(path).parent_path().string();
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError("open", directory);
  absl::Status status = fsync(fd) == 0 || errno == EINVAL ? absl::OkStatus() : FileError("sync", directory);
  close(fd);
  return status;
}

}  // namespace

absl::Status WriteCheckpoint(const std::string& path, const Checkpoint& checkpoint) {
  Writer writer;
  writer.Value(kMagic);
  writer.Value(checkpoint.identity);
  writer.Value(checkpoint.step);
  writer.Array(checkpoint.weights);
  writer.Array(checkpoint.optimizer);
  const std::string temporary = TemporaryOf(path);
  absl::Status status = WriteNewFile(temporary, std::move(writer).Finish());
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) status = FileError("replace", path);
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  return SyncDirectory(path);
}

absl::Status CheckWritable(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::FailedPreconditionError(absl::StrCat("cannot replace ", path, ": it is a folder"));
  }
  const std::string temporary = TemporaryOf(path);
  RETURN_IF_ERROR(WriteNewFile(temporary, {}));
  return unlink(temporary.c_str()) == 0 ? absl::OkStatus() : FileError("remove", temporary);
}

absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);  // an error, too, if it is a folder
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", path));
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes(size);
  errno = 0;
  if (!file.read(reinterpret_cast<char*>(bytes.data()), std::ssize(bytes))) return FileError("read", path);

  const absl::Status damaged = absl::DataLossError(absl::StrCat(path, " is no checkpoint, or damaged"));
  uint64_t sum = 0, magic = 0;
  if (bytes.size() < sizeof(sum)) return damaged;
  const auto body = std::span<const std::byte>(bytes).first(bytes.size() - sizeof(sum));
  std::memcpy(&sum, body.data() + body.size(), sizeof(sum));
  if (sum != XXH3_64bits(body.data(), body.size())) return damaged;
  Reader reader(body);
  Checkpoint checkpoint;
  const bool whole = reader.Value(magic) && magic == kMagic && reader.Value(checkpoint.identity) &&
                     reader.Value(checkpoint.step) && reader.Array(checkpoint.weights) &&
                     reader.Array(checkpoint.optimizer) && reader.AtEnd();
  if (!whole) return damaged;
  return checkpoint;
}

absl::Status CheckSame(const Identity& saved, const Identity& ours) {
  std::string differences;
  const auto compare = [&](const char* what, auto a, auto b) {
    if (a != b) absl::StrAppend(&differences, differences.empty() ? "" : ", ", what, " ", a, " and not ", b);
  };
  compare("a text with the hash", saved.text_hash, ours.text_hash);
  compare("seed", saved.seed, ours.seed);
  compare("batch", saved.batch, ours.batch);
  compare("alphabet", saved.alphabet, ours.alphabet);
  compare("context", saved.context, ours.context);
  compare("hidden", saved.hidden, ours.hidden);
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the checkpoint is of another training: it has ", differences));
}

}  // namespace char_lm
