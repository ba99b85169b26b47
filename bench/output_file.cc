#include "output_file.h"

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace gyre::bench {

absl::StatusOr<OutputFile> OpenOutputFile(const std::string& path) {
  if (path.empty()) return OutputFile();
  OutputFile file(std::fopen(path.c_str(), "w"));
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  return file;
}

}  // namespace gyre::bench
