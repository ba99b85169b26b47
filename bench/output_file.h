// A file that is written, and closed with its owner.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace gyre::bench {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OutputFile = std::unique_ptr<std::FILE, CloseFile>;

// Null where the path is empty: no file was asked for. The error names the path.
absl::StatusOr<OutputFile> OpenOutputFile(const std::string& path);

}  // namespace gyre::bench
