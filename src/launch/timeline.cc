#include "launch/timeline.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "launch/whole_file.h"
#include "nlohmann/json.hpp"

namespace gyre::launch {

namespace {

// The event on a line of a part; empty for brackets and for what was cut off. Only a line with nothing behind its event
// can have been.
std::string_view EventOf(std::string_view line) {
  if (!line.starts_with('{')) return {};
  if (line.ends_with("},")) return line.substr(0, line.size() - 1);
  return nlohmann::json::accept(line) ? line : std::string_view();
}

}  // namespace

std::string TimelinePart(const std::string& path, int rank) {
  return absl::StrCat(path, ".", rank);
}

absl::Status CheckTimeline(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(there)) {
    return absl::FailedPreconditionError(
        absl::StrCat("--timeline ", path, ": is a directory; try: --timeline ", path, "/trace.json"));
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(ErrnoStatus(absl::StrCat("--timeline ", path)).message(), "; try: a folder that you may write to"));
}

void ClearTimelineParts(const std::string& path, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) unlink(TimelinePart(path, rank).c_str());
}

absl::StatusOr<std::vector<int>> MergeTimeline(const std::string& path, int ranks) {
  std::vector<int> missing;
  for (int rank = 0; rank < ranks; ++rank) {
    if (access(TimelinePart(path, rank).c_str(), F_OK) != 0) missing.push_back(rank);
  }
  if (std::ssize(missing) == ranks) return missing;
  ASSIGN_OR_RETURN(WholeFile whole, WholeFile::Open(path));
  const char* separator = "[\n";
  for (int rank = 0; rank < ranks; ++rank) {
    std::ifstream part(TimelinePart(path, rank));
    for (std::string line; std::getline(part, line);) {
      const std::string_view event = EventOf(line);
      if (event.empty()) continue;
      RETURN_IF_ERROR(whole.Write(separator));
      RETURN_IF_ERROR(whole.Write(event));
      separator = ",\n";
    }
  }
  RETURN_IF_ERROR(whole.Write(*separator == '[' ? "[\n]\n" : "\n]\n"));
  RETURN_IF_ERROR(whole.Finish());
  ClearTimelineParts(path, ranks);
  return missing;
}

}  // namespace gyre::launch
