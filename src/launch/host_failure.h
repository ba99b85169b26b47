// What keeps a host from its part in a job, and the one line that says why the job was not started.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gyre::launch {

// Texts of other hosts come as they are; RemoteHost makes one line of each.
struct HostFailure {
  std::string stage;  // "resolve", "connect", "login", "remote shell", "agent", "working directory"
  std::string cause;
  std::string next;  // what to try; empty: nothing in particular
  int exit_code = 0;
  std::string host = {};
  int attempts = 1;  // to reach it
};

// How far a remote shell came, judged from what it said last: "resolve", "connect", "login", or "remote shell" where
// that does not show.
std::string StageOf(std::string_view said);

// "host b: agent: CAUSE; SUMMARY; the job was not started; try: NEXT". Hosts with the same trouble share its text; of
// many troubles and many hosts the first ones are told, and how many more there are. `summary` may be empty. What to
// try is what helps the first host. REQUIRES: `failures` is not empty.
std::string NotStartedLine(const std::vector<HostFailure>& failures, std::string_view summary);

}  // namespace gyre::launch
