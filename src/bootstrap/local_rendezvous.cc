#include "bootstrap/local_rendezvous.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "base/status.h"
#include "bootstrap/secret.h"

namespace gyre {

namespace {

constexpr size_t kMaxFileBytes = 512;

// Job ids have any characters: the file's name is a digest.
std::string Digest(std::string_view text) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  size_t length = 0;
  EVP_Q_digest(nullptr, "SHA256", nullptr, text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()),
               &length);
  digest.resize(length);
  return absl::BytesToHexString(digest).substr(0, 32);
}

}  // namespace

LocalRendezvous::LocalRendezvous(std::string_view directory, std::string_view job_id, uint64_t epoch)
    : path_(absl::StrCat(ToAbsl(directory), "/store-", Digest(job_id), "-", epoch)) {}

absl::Status LocalRendezvous::Publish(const Endpoint& endpoint) const {
  ASSIGN_OR_RETURN(const std::string suffix, MakeSecret());
  const std::string temporary = absl::StrCat(path_, ".", absl::BytesToHexString(suffix.substr(0, 8)));
  const std::string text = ToString(endpoint);
  const UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return ErrnoStatus(absl::StrCat("create ", temporary));
  // A few bytes into a new file: all or nothing.
  absl::Status status;
  if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    status = ErrnoStatus(absl::StrCat("write ", temporary));
  } else if (rename(temporary.c_str(), path_.c_str()) != 0) {
    status = ErrnoStatus(absl::StrCat("rename to ", path_));
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::StatusOr<Endpoint> LocalRendezvous::Read() const {
  const UniqueFd fd(open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0) return absl::UnavailableError("rank 0 has not opened its store yet");
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(path_, " is not a file of this user: remove it"));
  }
  std::string text(kMaxFileBytes, '\0');
  const ssize_t got = read(fd.get(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  auto endpoint = ParseEndpoint(text);
  if (!endpoint.ok()) return absl::UnavailableError(absl::StrCat(path_, ": ", endpoint.status().message()));
  return endpoint;
}

void LocalRendezvous::Remove(const Endpoint& endpoint) const {
  const auto there = Read();
  if (there.ok() && *there == endpoint) unlink(path_.c_str());
}

}  // namespace gyre
