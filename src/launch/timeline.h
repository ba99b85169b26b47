// The timelines of a job's ranks, joined into one file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::launch {

// Where rank `rank` writes its own: "PATH.3".
std::string TimelinePart(const std::string& path, int rank);

// Whether MergeTimeline can write to the path. Changes nothing. The error names the path.
absl::Status CheckTimeline(const std::string& path);

// Removes the parts that an earlier job left, if its gyrerun was killed. An earlier timeline at the path stays.
void ClearTimelineParts(const std::string& path, int ranks);

// Writes all events of the parts to the path, as one JSON array, and removes the parts. The end of a part may be cut
// off: what is whole counts. Returns the ranks that left no part here. If no rank left one, the path stays as it is.
// Errors name the file.
absl::StatusOr<std::vector<int>> MergeTimeline(const std::string& path, int ranks);

}  // namespace gyre::launch
