#include "runtime/timeline.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/thread.h"

namespace gyre::internal {

namespace {

constexpr uint64_t kRoom = 1 << 16;
constexpr int kBlock = 4096;  // events a write
constexpr std::chrono::milliseconds kInterval(100);

}  // namespace

absl::StatusOr<std::unique_ptr<Timeline>> Timeline::Open(const std::string& path, TimelineTrack track, Logger logger) {
  ASSIGN_OR_RETURN(TimelineFile file, TimelineFile::Create(path, track));
  std::unique_ptr<Timeline> timeline(new Timeline(std::move(file), std::move(track), std::move(logger)));
  ASSIGN_OR_RETURN(timeline->thread_, StartThread("the timeline's writer", [self = timeline.get()] { self->Write(); }));
  return timeline;
}

Timeline::Timeline(TimelineFile file, TimelineTrack track, Logger logger)
    : file_(std::move(file)), track_(std::move(track)), logger_(std::move(logger)), ring_(kRoom) {}

Timeline::~Timeline() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Timeline::Record(const Observed& observed) {
  ring_.Push({.observed = observed, .thread = gettid()});
}

void Timeline::Write() {
  bool closing = false, writable = true;
  while (!closing && writable) {
    {
      std::unique_lock lock(mutex_);
      closing = wake_.wait_for(lock, kInterval, [this] { return closing_; });
    }
    writable = Flush();
  }
}

// False if the file cannot be written any more.
bool Timeline::Flush() {
  bool more = true;
  while (more) {
    events_.clear();
    for (int i = 0; i < kBlock; ++i) {
      const auto event = ring_.Pop();
      more = event.has_value();
      if (!more) break;
      AppendJson(*event, track_, next_id_++, events_);
    }
    if (const int64_t dropped = ring_.dropped(); dropped != dropped_) {
      AppendDropped(dropped - dropped_, track_, std::chrono::steady_clock::now(), events_);
      dropped_ = dropped;
    }
    if (const absl::Status written = file_.Append(events_); !written.ok()) {
      logger_.Warn(absl::StrCat("the timeline ends here: ", written.ToString()));
      return false;
    }
  }
  return true;
}

}  // namespace gyre::internal
