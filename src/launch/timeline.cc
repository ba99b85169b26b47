#include "launch/timeline.h"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

void ClearTimeline(const std::string& path, int ranks) {
  std::remove(path.c_str());
  for (int rank = 0; rank < ranks; ++rank) std::remove(TimelinePart(path, rank).c_str());
}

absl::StatusOr<std::vector<int>> MergeTimeline(const std::string& path, int ranks) {
  std::ofstream whole(path, std::ios::trunc);
  if (!whole) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  std::vector<int> missing;
  const char* separator = "[\n";
  for (int rank = 0; rank < ranks; ++rank) {
    std::ifstream part(TimelinePart(path, rank));
    if (!part) missing.push_back(rank);
    for (std::string line; std::getline(part, line);) {
      const std::string_view event = EventOf(line);
      if (event.empty()) continue;
      whole << separator << event;
      separator = ",\n";
    }
  }
  whole << (*separator == '[' ? "[\n]\n" : "\n]\n");
  whole.close();
  if (!whole) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  for (int rank = 0; rank < ranks; ++rank) std::remove(TimelinePart(path, rank).c_str());
  return missing;
}

}  // namespace gyre::launch
