// TimelineFile: a trace of events in Chrome's JSON array format, one event a line, which Perfetto and chrome://tracing
// read. After every Append the file is whole JSON, so that of a process that was killed all is there but what was not
// yet appended (and a write that was cut short, which viewers bear).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"
#include "runtime/event_ring.h"

namespace gyre::internal {

// Who the events are of.
struct TimelineTrack {
  int rank = 0;
  std::string host{};                // its name
  double offset_us = 0;              // what is added to this host's clock to make it rank 0's
  double offset_uncertainty_us = 0;  // at most so far from true, while the clocks run alike
};

// Not thread-safe.
class TimelineFile {
 public:
  // Makes the file anew and names the track in it. Errors name the file.
  static absl::StatusOr<TimelineFile> Create(const std::string& path, const TimelineTrack& track);

  // JSON objects, each but the first as its own line (AppendJson); empty: nothing to do. On failure the file stays as
  // it was.
  absl::Status Append(absl::string_view events);

 private:
  explicit TimelineFile(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  int64_t end_ = 0;  // where the closing bracket is
};

// Adds the event to those in `events`: one line, or for an asynchronous call its begin and its end, which have `id` in
// common. Takes a fraction of a microsecond: thousands of events a second are to cost nothing.
void AppendJson(const Event& event, const TimelineTrack& track, uint64_t id, std::string& events);

// Likewise, that so many events were lost for want of room.
void AppendDropped(int64_t dropped, const TimelineTrack& track, TimePoint now, std::string& events);

}  // namespace gyre::internal
