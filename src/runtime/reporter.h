// Reporter: sends a rank's reports to gyrerun, through a socket that the ranks of a host inherit: one packet a report,
// a line of text such as "rank=3 phase=PROCESSING activity=training step=12 steps=1000 loss=2.5". What is not there did
// not change.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "gyre/job_report.h"

namespace gyre::internal {

// The line, or kInvalidArgument. Pure.
absl::StatusOr<std::string> ReportLine(int rank, const JobReport& report);

// Thread-safe.
class Reporter {
 public:
  // `fd`: of the socket, which stays its owner's, and becomes close-on-exec: programs that this one starts are not to
  // report in its place. None, or anything but such a socket: reports go nowhere.
  Reporter(std::optional<int> fd, int rank);

  // Reports with nothing but numbers are sent ten times a second at most; the others always, for which it may block for
  // 0.1 s. What gyrerun does not take is dropped. kInvalidArgument: the activity is no word, or a number is negative.
  absl::Status Report(const JobReport& report);

 private:
  const int rank_;
  std::mutex mutex_;
  UniqueFd socket_;
  TimePoint next_{};  // when numbers may be sent again
};

}  // namespace gyre::internal
