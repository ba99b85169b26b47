#include "runtime/timeline_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace gyre::internal {

namespace {

constexpr absl::string_view kOpening = "[\n", kSeparator = ",\n", kClosing = "\n]\n";

// In nanoseconds: whole numbers are written sooner than floating-point ones.
int64_t OnTrack(TimePoint time, const TimelineTrack& track) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch());
  return since.count() + std::llround(track.offset_us * 1000);
}

// What comes next is a line of its own.
void Separate(std::string& events) {
  if (!events.empty()) absl::StrAppend(&events, kSeparator);
}

void AppendMicroseconds(absl::string_view name, int64_t nanoseconds, std::string& events) {
  const int64_t positive = std::abs(nanoseconds);
  absl::StrAppend(&events, name, nanoseconds < 0 ? "-" : "", positive / 1000, ".",
                  absl::Dec(positive % 1000, absl::kZeroPad3));
}

void AppendArguments(const Observed& observed, std::string& events) {
  absl::StrAppend(&events, R"(,"args":{"bytes":)", observed.bytes, observed.failed ? R"(,"failed":true}})" : "}}");
}

absl::Status WriteAt(int fd, absl::string_view text, int64_t at) {
  while (!text.empty()) {
    const ssize_t written = pwrite(fd, text.data(), text.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return absl::ErrnoToStatus(errno, "cannot write the timeline");
    text.remove_prefix(static_cast<size_t>(written));
    at += written;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TimelineFile> TimelineFile::Create(const std::string& path, const TimelineTrack& track) {
  UniqueFd fd(open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644));
  if (!fd) return absl::ErrnoToStatus(errno, absl::StrCat("GYRE_TIMELINE: cannot write ", path));
  TimelineFile file(std::move(fd));
  const nlohmann::ordered_json name = {{"name", "process_name"},
                                       {"ph", "M"},
                                       {"pid", track.rank},
                                       {"args", {{"name", absl::StrCat("rank ", track.rank, " on ", track.host)}}}};
  const nlohmann::ordered_json order = {
      {"name", "process_sort_index"}, {"ph", "M"}, {"pid", track.rank}, {"args", {{"sort_index", track.rank}}}};
  const nlohmann::ordered_json clock = {
      {"name", "clock_offset"},
      {"ph", "M"},
      {"pid", track.rank},
      {"args", {{"offset_us", track.offset_us}, {"uncertainty_us", track.offset_uncertainty_us}}}};
  std::string lines;
  for (const auto* each : {&name, &order, &clock}) {
    Separate(lines);
    absl::StrAppend(&lines, each->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  RETURN_IF_ERROR(file.Append(lines));
  return file;
}

// The new events take the closing bracket's place and bring one along.
absl::Status TimelineFile::Append(absl::string_view events) {
  if (events.empty()) return absl::OkStatus();
  const std::string block = absl::StrCat(end_ == 0 ? kOpening : kSeparator, events, kClosing);
  if (absl::Status written = WriteAt(fd_.get(), block, end_); !written.ok()) {
    // A full disk may have taken a part. As it was before, it has room: in blocks that it keeps.
    if (end_ > 0 && WriteAt(fd_.get(), kClosing, end_).ok() &&
        ftruncate(fd_.get(), end_ + static_cast<int64_t>(kClosing.size())) != 0) {
      return ErrnoStatus("truncate the timeline");
    }
    return written;
  }
  end_ += static_cast<int64_t>(block.size() - kClosing.size());
  return absl::OkStatus();
}

void AppendJson(const Event& event, const TimelineTrack& track, uint64_t id, std::string& events) {
  const Observed& observed = event.observed;
  const int64_t begin = OnTrack(observed.begin, track), end = OnTrack(observed.end, track);
  const auto open = [&](absl::string_view phase) {
    Separate(events);
    absl::StrAppend(&events, R"({"name":")", ActivityName(observed.activity), R"(","ph":")", phase, R"(","pid":)",
                    track.rank, R"(,"tid":)", event.thread);
    // Viewers tell asynchronous events apart by category and id, across processes.
    if (observed.asynchronous) absl::StrAppend(&events, R"(,"cat":"async","id":")", track.rank, ".", id, R"(")");
  };
  open(observed.asynchronous ? "b" : "X");
  AppendMicroseconds(R"(,"ts":)", begin, events);
  if (!observed.asynchronous) AppendMicroseconds(R"(,"dur":)", end - begin, events);
  AppendArguments(observed, events);
  if (!observed.asynchronous) return;
  open("e");
  AppendMicroseconds(R"(,"ts":)", end, events);
  absl::StrAppend(&events, "}");
}

void AppendDropped(int64_t dropped, const TimelineTrack& track, TimePoint now, std::string& events) {
  Separate(events);
  absl::StrAppend(&events, R"({"name":"dropped","ph":"i","s":"p","pid":)", track.rank, R"(,"tid":0)");
  AppendMicroseconds(R"(,"ts":)", OnTrack(now, track), events);
  absl::StrAppend(&events, R"(,"args":{"events":)", dropped, "}}");
}

}  // namespace gyre::internal
