#include "runtime/timeline_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace gyre::internal {

namespace {

constexpr absl::string_view kOpening = "[\n", kSeparator = ",\n", kClosing = "\n]\n";

double Microseconds(TimePoint time, const TimelineTrack& track) {
  return std::chrono::duration<double, std::micro>(time.time_since_epoch()).count() + track.offset_us;
}

std::string Arguments(const Observed& observed) {
  return absl::StrCat("{\"bytes\":", observed.bytes, observed.failed ? ",\"failed\":true}" : "}");
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
  std::vector<std::string> lines;
  for (const auto* each : {&name, &order, &clock}) {
    lines.push_back(each->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  RETURN_IF_ERROR(file.Append(lines));
  return file;
}

// The new events take the closing bracket's place and bring one along.
absl::Status TimelineFile::Append(const std::vector<std::string>& events) {
  if (events.empty()) return absl::OkStatus();
  const std::string block =
      absl::StrCat(end_ == 0 ? kOpening : kSeparator, absl::StrJoin(events, kSeparator), kClosing);
  RETURN_IF_ERROR(WriteAt(fd_.get(), block, end_));
  end_ += static_cast<int64_t>(block.size() - kClosing.size());
  return absl::OkStatus();
}

void AppendJson(const Event& event, const TimelineTrack& track, uint64_t id, std::vector<std::string>& lines) {
  const Observed& observed = event.observed;
  const double begin = Microseconds(observed.begin, track), end = Microseconds(observed.end, track);
  const char* const name = ActivityName(observed.activity);
  if (!observed.asynchronous) {
    lines.push_back(absl::StrFormat(R"({"name":"%s","ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":%s})", name,
                                    track.rank, event.thread, begin, end - begin, Arguments(observed)));
    return;
  }
  // Viewers tell asynchronous events apart by category and id, across processes.
  const std::string identity = absl::StrFormat(R"("name":"%s","cat":"async","id":"%d.%d","pid":%d,"tid":%d)", name,
                                               track.rank, static_cast<int64_t>(id), track.rank, event.thread);
  lines.push_back(absl::StrFormat(R"({%s,"ph":"b","ts":%.3f,"args":%s})", identity, begin, Arguments(observed)));
  lines.push_back(absl::StrFormat(R"({%s,"ph":"e","ts":%.3f})", identity, end));
}

std::string DroppedJson(int64_t events, const TimelineTrack& track, TimePoint now) {
  return absl::StrFormat(R"({"name":"dropped","ph":"i","s":"p","pid":%d,"tid":0,"ts":%.3f,"args":{"events":%d}})",
                         track.rank, Microseconds(now, track), events);
}

}  // namespace gyre::internal
