// Which rank's failure ended the job. Pure.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>

#include "base/clock.h"

namespace gyre::launch {

// How a rank ended.
struct RankEnd {
  int rank = 0;
  pid_t pid = 0;
  TimePoint when{};
  int code = 0;    // the exit code, if no signal killed it
  int signal = 0;  // the signal that killed it, or 0
  bool core_dumped = false;
  int exec_error = 0;     // the errno of execve(2), if the program could not even be executed
  bool asked_to = false;  // gyrerun had sent it a signal to end before
  std::string host{};     // where it ran, if not here
  bool lost = false;      // with its host: `when` is when that said last that it lived
  bool server = false;    // a parameter server, and `rank` its number

  bool failed() const { return code != 0 || signal != 0 || lost; }
};

// The first failure of `ends` (by time; those of one host in the order in which they were seen), or nothing if none
// failed. What ends after a host last said that it lived may be a consequence of its loss, even if it ended before the
// loss was noticed; what failed before cannot be. But a rank that dies of a signal, or is lost with its host, takes the
// others along within milliseconds, and theirs may be seen first, or seem so where hosts are not equally far away: so a
// loss, or a signal that was not gyrerun's, wins over a plain exit code up to 100 ms before it.
std::optional<RankEnd> FindRootCause(std::span<const RankEnd> ends);

// Its exit code: 128 + the signal, 126 or 127 if the program could not be executed, 137 (as if killed) if it was lost
// with its host, else its own.
int ExitCodeOf(const RankEnd& end);

// "was killed by signal 9 (Killed)"
std::string HowItEnded(const RankEnd& end);

// "rank 2 (pid 123) was killed by signal 9 (Killed) 12.3 s after the start"; "rank 2 on b (pid 123) ..."
std::string Describe(const RankEnd& end, TimePoint start);

}  // namespace gyre::launch
