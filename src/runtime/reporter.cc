#include "runtime/reporter.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

constexpr size_t kLongestActivity = 32;
constexpr Duration kBetweenNumbers = std::chrono::milliseconds(100);
constexpr int kWriteTimeout = 100;  // milliseconds

bool IsActivity(std::string_view word) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  return word.size() <= kLongestActivity && std::ranges::all_of(word, allowed);
}

const char* NameOf(JobPhase phase) {
  switch (phase) {
    case JobPhase::kDownloading: return "DOWNLOADING";
    case JobPhase::kProcessing: return "PROCESSING";
    case JobPhase::kStoring: break;
  }
  return "STORING";
}

bool IsReportSocket(int fd) {
  int type = 0;
  int domain = 0;
  socklen_t size = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET &&
         getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

}  // namespace

absl::StatusOr<std::string> ReportLine(int rank, const JobReport& report) {
  if (!IsActivity(report.activity)) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, ": a report's activity must be a word of at most ",
                                                   kLongestActivity, " letters, digits, '_', '-' and '.'"));
  }
  if (report.step.value_or(0) < 0 || report.steps.value_or(0) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, ": a report's step and steps must be 0 or more"));
  }
  std::string line = absl::StrCat("rank=", rank);
  if (report.phase) absl::StrAppend(&line, " phase=", NameOf(*report.phase));
  if (!report.activity.empty()) absl::StrAppend(&line, " activity=", ToAbsl(report.activity));
  if (report.step) absl::StrAppend(&line, " step=", *report.step);
  if (report.steps) absl::StrAppend(&line, " steps=", *report.steps);
  if (report.loss) absl::StrAppend(&line, " loss=", *report.loss);
  return line;
}

Reporter::Reporter(std::optional<int> fd, int rank) : rank_(rank) {
  if (!fd || !IsReportSocket(*fd)) return;
  socket_.Reset(fcntl(*fd, F_DUPFD_CLOEXEC, 3));
  fcntl(*fd, F_SETFD, FD_CLOEXEC);
}

absl::Status Reporter::Report(const JobReport& report) {
  ASSIGN_OR_RETURN(const std::string line, ReportLine(rank_, report));
  const std::lock_guard lock(mutex_);
  if (!socket_) return absl::OkStatus();
  const bool numbers_only = !report.phase && report.activity.empty();
  const TimePoint now = std::chrono::steady_clock::now();
  const bool last = report.step && report.step == report.steps;
  if (numbers_only && now < next_ && !last) return absl::OkStatus();
  next_ = now + kBetweenNumbers;
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  ssize_t sent = send(socket_.get(), line.data(), line.size(), kFlags);
  if (sent < 0 && errno == EAGAIN && !numbers_only) {
    pollfd room{socket_.get(), POLLOUT, 0};
    poll(&room, 1, kWriteTimeout);
    sent = send(socket_.get(), line.data(), line.size(), kFlags);
  }
  if (sent < 0 && errno != EAGAIN && errno != EINTR) socket_.Reset();  // nobody listens any more
  return absl::OkStatus();
}

}  // namespace gyre::internal
