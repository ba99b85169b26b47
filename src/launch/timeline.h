// The timelines of a job's ranks, joined into one file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::launch {

// Where rank `rank` writes its own: "PATH.3".
std::string TimelinePart(const std::string& path, int rank);

// Removes what an earlier job left at the path and at its parts.
void ClearTimeline(const std::string& path, int ranks);

// Writes all events of the parts to the path, as one JSON array, and removes the parts. The end of a part may be cut
// off: what is whole counts. Returns the ranks that left no part here. Errors name the file.
absl::StatusOr<std::vector<int>> MergeTimeline(const std::string& path, int ranks);

}  // namespace gyre::launch
