// Timeline: records calls as they end and writes them to a file from a thread of its own.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "runtime/event_ring.h"
#include "runtime/timeline_file.h"

namespace gyre::internal {

// Thread-safe.
class Timeline {
 public:
  // Errors name the file. A file that cannot be written later on is a warning, and the end of it.
  static absl::StatusOr<std::unique_ptr<Timeline>> Open(const std::string& path, TimelineTrack track, Logger logger);

  // Writes what is left.
  ~Timeline();

  // Neither blocks nor allocates. Events beyond 64 Ki in a tenth of a second are dropped, and counted in the file.
  void Record(const Observed& observed);

 private:
  Timeline(TimelineFile file, TimelineTrack track, Logger logger);
  void Write();
  bool Flush();

  TimelineFile file_;
  const TimelineTrack track_;
  const Logger logger_;
  EventRing ring_;
  uint64_t next_id_ = 0;  // of asynchronous events; the writer's, as are the next two
  int64_t dropped_ = 0;   // of which the file tells
  std::string events_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool closing_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace gyre::internal
