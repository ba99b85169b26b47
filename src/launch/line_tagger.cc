#include "launch/line_tagger.h"

#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace gyre::launch {

namespace {

// The length of the first line of `text`, its end included. "\r\n" is one end.
size_t FirstLineSize(std::string_view text) {
  const size_t end = text.find_first_of("\r\n");
  if (end == std::string_view::npos) return text.size();
  return text.substr(end, 2) == "\r\n" ? end + 2 : end + 1;
}

}  // namespace

void LineTagger::Append(std::string_view block, std::string_view time, std::string& out) {
  if (block.empty()) return;
  if (tag_.empty() && !timestamp_) {
    out.append(block);
    return;
  }
  if (after_return_ && block[0] == '\n') {
    out += '\n';
    block.remove_prefix(1);
  }
  while (!block.empty()) {
    const std::string_view line = block.substr(0, FirstLineSize(block));
    if (timestamp_) absl::StrAppend(&out, ToAbsl(time), " ");
    out.append(tag_).append(line);
    block.remove_prefix(line.size());
  }
  after_return_ = out.back() == '\r';
  if (out.back() != '\n' && !after_return_) out += '\n';
}

std::string RankTag(int rank, std::string_view stream, std::string_view host) {
  return absl::StrCat("[", rank, host.empty() ? "" : "@", ToAbsl(host), "]<", ToAbsl(stream), ">:");
}

std::string TimeText() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%03d", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
                         local.tm_hour, local.tm_min, local.tm_sec, now.tv_nsec / 1'000'000);
}

}  // namespace gyre::launch
