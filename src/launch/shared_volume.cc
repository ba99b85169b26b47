#include "launch/shared_volume.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::launch {

namespace {

// Of a socket's path, with what the library adds for its own folder and the socket's name.
constexpr size_t kLongestFolder = 60;

absl::Status Not(const std::string& volume, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("--shared-volume ", volume, ": ", why));
}

}  // namespace

absl::StatusOr<SharedVolume> OpenSharedVolume(const std::string& volume) {
  SharedVolume shared{.id = {}, .folder = absl::StrCat(volume, "/gyre-", geteuid())};
  if (volume.empty() || volume.front() != '/') return Not(volume, "is no absolute path");
  if (shared.folder.size() > kLongestFolder) {
    return Not(volume, absl::StrCat("is too long a path for sockets in it: ", shared.folder, " has ",
                                    shared.folder.size(), " bytes, of ", kLongestFolder, " at most"));
  }
  if (mkdir(shared.folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Not(volume, ErrnoStatus(shared.folder).message());
  }
  struct stat info {};
  if (lstat(shared.folder.c_str(), &info) != 0) return Not(volume, ErrnoStatus(shared.folder).message());
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 022) != 0) {
    return Not(volume, absl::StrCat(shared.folder, " is no folder of this user's alone"));
  }
  std::string boot;
  if (std::ifstream file("/proc/sys/kernel/random/boot_id"); !std::getline(file, boot)) {
    return Not(volume, "the system does not say which machine this is");
  }
  shared.id = absl::StrCat(boot, "/volume-", major(info.st_dev), ":", minor(info.st_dev), "-", info.st_ino);
  return shared;
}

std::vector<std::string> VariablesOf(const SharedVolume& volume) {
  // The library meets in its user's runtime folder where ranks are told that they share a host.
  return {absl::StrCat("GYRE_HOST_ID=", volume.id), absl::StrCat("XDG_RUNTIME_DIR=", volume.folder)};
}

}  // namespace gyre::launch
