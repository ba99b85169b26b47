#include "bootstrap/secret.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace gyre {

namespace {

constexpr size_t kRandomBytes = 32;

absl::Status CheckLength(std::string_view what, size_t size) {
  if (size >= kMinSecretBytes && size <= kMaxSecretBytes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(ToAbsl(what), " holds ", size, " bytes; a secret has ", kMinSecretBytes, " to ", kMaxSecretBytes));
}

// From offset 0, not moving the file's own; at most one byte more than a secret may have, so that too long shows.
absl::StatusOr<std::string> ReadWhole(int fd, std::string_view what) {
  std::string bytes(kMaxSecretBytes + 1, '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = pread(fd, bytes.data() + filled, bytes.size() - filled, static_cast<off_t>(filled));
    if (got == 0) break;
    if (got > 0) filled += static_cast<size_t>(got);
    if (got < 0 && errno != EINTR) {
      return absl::FailedPreconditionError(ErrnoStatus(absl::StrCat("read ", ToAbsl(what))).message());
    }
  }
  bytes.resize(filled);
  return bytes;
}

absl::Status WriteWhole(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(fd, bytes.data(), bytes.size());
    if (put > 0) bytes.remove_prefix(static_cast<size_t>(put));
    if (put < 0 && errno != EINTR) return ErrnoStatus("write");
  }
  return absl::OkStatus();
}

constexpr char kOwnDirectory[] =
    ": have it removed, or set XDG_RUNTIME_DIR to a directory that only this user may write";

absl::Status CheckOwnedDirectory(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(ErrnoStatus(absl::StrCat("open directory ", path)).message(), kOwnDirectory));
  }
  if (info.st_uid != geteuid()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " belongs to user ", info.st_uid, ", not to user ", geteuid(), kOwnDirectory));
  }
  if ((info.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is open to other users: chmod 700 ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> MakeOwnedDirectory(std::string path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::FailedPreconditionError(ErrnoStatus(absl::StrCat("make directory ", path)).message());
  }
  RETURN_IF_ERROR(CheckOwnedDirectory(path));
  return path;
}

// Writes a new secret under a name of its own and links it to `path`, so that a reader finds all of it or nothing, and
// of several makers one wins.
absl::Status CreateSecretFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string secret, MakeSecret());
  ASSIGN_OR_RETURN(const std::string suffix, MakeSecret());
  const std::string temporary = absl::StrCat(path, ".", absl::BytesToHexString(suffix.substr(0, 8)));
  const UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return ErrnoStatus(absl::StrCat("create ", temporary));
  absl::Status status = WriteWhole(fd.get(), absl::BytesToHexString(secret));
  if (status.ok() && link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    status = ErrnoStatus(absl::StrCat("link ", path));
  }
  unlink(temporary.c_str());
  return status;
}

}  // namespace

absl::StatusOr<std::string> MakeSecret() {
  std::string secret(kRandomBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()), static_cast<int>(secret.size())) != 1) {
    return absl::InternalError("no random numbers are to be had");
  }
  return secret;
}

absl::StatusOr<UniqueFd> MakeSecretFd(std::string_view secret) {
  if (const absl::Status length = CheckLength("the secret given", secret.size()); !length.ok()) {
    return absl::InvalidArgumentError(length.message());
  }
  UniqueFd fd(memfd_create("gyre-secret", MFD_ALLOW_SEALING));
  if (!fd) return ErrnoStatus("memfd_create");
  RETURN_IF_ERROR(WriteWhole(fd.get(), secret));
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0) {
    return ErrnoStatus("seal the secret");
  }
  return fd;
}

absl::StatusOr<std::string> ReadSecretFd(int fd) {
  const std::string what = absl::StrCat("descriptor ", fd, " (GYRE_SECRET_FD)");
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  const int seals = fcntl(fd, F_GET_SEALS);  // other files have none
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::FailedPreconditionError(
        absl::StrCat(what,
                     " is not the secret the launcher handed down: a program between it and this one closed it, or "
                     "joined the job itself; for a job of its own, unset GYRE_RANK"));
  }
  ASSIGN_OR_RETURN(std::string secret, ReadWhole(fd, what));
  RETURN_IF_ERROR(CheckLength(what, secret.size()));
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return ErrnoStatus(absl::StrCat("keep to this process ", what));
  return secret;
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  // Not blocking, so that a pipe in its place is seen for what it is rather than waited on.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd && errno == ENOENT) return absl::NotFoundError(absl::StrCat("the secret's file ", path, " does not exist"));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0) {
    return absl::FailedPreconditionError(ErrnoStatus(absl::StrCat("open the secret's file ", path)).message());
  }
  if (!S_ISREG(info.st_mode)) return absl::FailedPreconditionError(absl::StrCat(path, " is not a regular file"));
  if (info.st_uid != geteuid()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " belongs to user ", info.st_uid, ", not to user ", geteuid(), ": chown it"));
  }
  if ((info.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s has mode %04o, open to other users: chmod 600 %s", path, info.st_mode & 07777, path));
  }
  ASSIGN_OR_RETURN(std::string secret, ReadWhole(fd.get(), path));
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  RETURN_IF_ERROR(CheckLength(path, secret.size()));
  return secret;
}

absl::StatusOr<std::string> UserDirectory(const Environment& environment) {
  if (const auto runtime = environment("XDG_RUNTIME_DIR"); runtime && runtime->front() == '/') {
    struct stat info {};
    const bool ours = lstat(runtime->c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
                      (info.st_mode & 022) == 0;
    if (ours) return MakeOwnedDirectory(*runtime + "/gyre");
  }
  return MakeOwnedDirectory(absl::StrCat("/tmp/gyre-", geteuid()));
}

absl::StatusOr<std::string> UserSecret(const Environment& environment) {
  ASSIGN_OR_RETURN(const std::string directory, UserDirectory(environment));
  const std::string path = directory + "/secret";
  auto secret = ReadSecretFile(path);
  if (!absl::IsNotFound(secret.status())) return secret;
  RETURN_IF_ERROR(CreateSecretFile(path));
  return ReadSecretFile(path);
}

}  // namespace gyre
