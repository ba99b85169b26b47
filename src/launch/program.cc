#include "launch/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "launch/exit_code.h"

namespace gyre::launch {

namespace {

enum class Kind { kAbsent, kDirectory, kNotExecutable, kExecutable };

Kind Look(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return errno == EACCES ? Kind::kNotExecutable : Kind::kAbsent;
  if (S_ISDIR(info.st_mode)) return Kind::kDirectory;
  return S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0 ? Kind::kExecutable : Kind::kNotExecutable;
}

absl::Status Unusable(const std::string& path, Kind kind) {
  if (kind == Kind::kDirectory) {
    return absl::PermissionDeniedError(absl::StrCat(path, " is a directory; try: a program inside it"));
  }
  return absl::PermissionDeniedError(absl::StrCat(path, " is not executable; try: chmod +x ", path));
}

}  // namespace

absl::StatusOr<std::string> FindProgram(const std::string& program, std::string_view path) {
  if (program.find('/') != std::string::npos) {
    const Kind kind = Look(program);
    if (kind == Kind::kExecutable) return program;
    if (kind != Kind::kAbsent) return Unusable(program, kind);
    return absl::NotFoundError(absl::StrCat(program, " does not exist; try: ls -l ", program));
  }
  std::optional<std::string> unusable;
  for (size_t begin = 0; begin <= path.size() && !program.empty();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder(path.substr(begin, end - begin));
    std::string candidate = absl::StrCat(folder.empty() ? "." : folder, "/", program);
    const Kind kind = Look(candidate);
    if (kind == Kind::kExecutable) return candidate;
    if (kind == Kind::kNotExecutable && !unusable) unusable = std::move(candidate);
    begin = end + 1;
  }
  if (unusable) return Unusable(*unusable, Kind::kNotExecutable);
  const bool here = Look("./" + program) == Kind::kExecutable;
  return absl::NotFoundError(absl::StrCat(
      program, " was not found along PATH; try: ", here ? "./" : "the path of the program", here ? program : ""));
}

int ExitCodeOf(const absl::Status& not_started) {
  return absl::IsNotFound(not_started) ? kExitNotFound : kExitNotExecutable;
}

}  // namespace gyre::launch
