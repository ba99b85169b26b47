#include "checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gyre/status_macros.h"
#include "xxhash.h"

namespace char_lm {

namespace {

constexpr uint64_t kMagic = 0x324d4c4345525947;       // "GYRECLM2"
constexpr uint64_t kFirstMagic = 0x314d4c4345525947;  // "GYRECLM1"

class Writer {
 public:
  void Value(const auto& value) { Bytes(std::as_bytes(std::span(&value, 1))); }
  void Array(const auto& array) {
    const auto bytes = std::as_bytes(std::span(array));
    Value(static_cast<uint64_t>(bytes.size()));
    Bytes(bytes);
  }
  void Arrays(const auto& arrays) {
    Value(static_cast<uint64_t>(arrays.size()));
    for (const auto& array : arrays) Array(array);
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
  bool Array(auto& array) {
    uint64_t bytes = 0;
    if (!Value(bytes) || bytes > rest_.size() || bytes % sizeof(array[0]) != 0) return false;
    array.resize(bytes / sizeof(array[0]));
    return Bytes(std::as_writable_bytes(std::span(array)));
  }
  bool Arrays(auto& arrays) {
    uint64_t count = 0;
    if (!Value(count) || count > rest_.size() / sizeof(count)) return false;
    arrays.resize(count);
    return std::ranges::all_of(arrays, [this](auto& array) { return this->Array(array); });
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

// Names and values.
std::vector<std::pair<std::string, std::string>> FactsOf(const Identity& identity) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (const absl::string_view line : absl::StrSplit(identity, '\n', absl::SkipEmpty())) {
    facts.push_back(absl::StrSplit(line, absl::MaxSplits(": ", 1)));
  }
  return facts;
}

}  // namespace

absl::Status WriteCheckpoint(const std::string& path, const Checkpoint& checkpoint) {
  Writer writer;
  writer.Value(kMagic);
  writer.Array(checkpoint.identity);
  writer.Value(checkpoint.step);
  writer.Array(checkpoint.weights);
  writer.Array(checkpoint.optimizer);
  writer.Arrays(checkpoint.compression);
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
  if (reader.Value(magic) && magic == kFirstMagic) {
    return absl::FailedPreconditionError(absl::StrCat(path, " was written by an older char_lm: train anew"));
  }
  const bool whole = magic == kMagic && reader.Array(checkpoint.identity) && reader.Value(checkpoint.step) &&
                     reader.Array(checkpoint.weights) && reader.Array(checkpoint.optimizer) &&
                     reader.Arrays(checkpoint.compression) && reader.AtEnd();
  if (!whole) return damaged;
  return checkpoint;
}

void AddFact(Identity& identity, std::string_view name, std::string_view value) {
  identity.append(name).append(": ").append(value).append("\n");
}

absl::Status CheckSame(const Identity& saved, const Identity& ours) {
  std::map<std::string, std::pair<std::string, std::string>> values;  // by name: saved and ours
  for (const auto& [name, value] : FactsOf(saved)) values[name].first = value;
  for (const auto& [name, value] : FactsOf(ours)) values[name].second = value;
  std::vector<std::string> differences;
  for (const auto& [name, both] : values) {
    const auto& [theirs, own] = both;
    if (theirs == own) continue;
    differences.push_back(
        absl::StrCat(name, " ", theirs.empty() ? "unknown" : theirs, " and not ", own.empty() ? "unknown" : own));
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the checkpoint is of another training: it has ", absl::StrJoin(differences, ", ")));
}

}  // namespace char_lm
