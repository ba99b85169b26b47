#include "launch/stacks.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/read_file.h"
#include "launch/descendants.h"
#include "launch/now.h"
#include "launch/program.h"
#include "launch/report.h"
#include "launch/script.h"

namespace gyre::launch {

namespace {

constexpr size_t kMostStacks = 16;
constexpr size_t kMostContent = 1 << 16;  // bytes of a file in /proc
constexpr auto kStacksPatience = std::chrono::seconds(20);

std::string Content(const std::string& path) {
  const std::string text = ReadFile(path, kMostContent).value_or("");
  return OneLine(text.substr(0, text.find_last_not_of(" \n") + 1));
}

bool IsThere(const char* tool) {
  const char* path = std::getenv("PATH");
  return FindProgram(tool, path != nullptr ? path : "/usr/bin:/bin").ok();
}

// What the tool prints of the process, without what is no stack; empty if it cannot.
std::string ByTool(pid_t pid, TimePoint deadline) {
  std::vector<std::string> commands;
  if (IsThere("eu-stack")) commands.push_back(absl::StrCat("eu-stack -p ", pid, " 2>/dev/null"));
  if (IsThere("gdb")) {
    commands.push_back(absl::StrCat("gdb -nx -batch -p ", pid,
                                    " -ex 'set pagination off' -ex 'thread apply all backtrace 64' 2>/dev/null"));
  }
  for (const std::string& command : commands) {
    const absl::StatusOr<std::string> printed = RunScript(command, deadline);
    if (!printed.ok()) continue;
    std::string text;
    bool stack = false;
    for (const absl::string_view line : absl::StrSplit(*printed, '\n', absl::SkipWhitespace())) {
      stack = stack || line.substr(0, 4) == "TID " || line.substr(0, 7) == "Thread ";
      if (stack && line[0] != '[') absl::StrAppend(&text, "    ", line, "\n");
    }
    if (text.find('#') != std::string::npos) return text;
  }
  return "";
}

std::string ByKernel(pid_t pid) {
  std::string text = "    (neither eu-stack nor gdb is there and may look; from the kernel)\n";
  for (const Process& thread : LivingThreads(pid)) {
    const std::string folder = absl::StrCat("/proc/", pid, "/task/", thread.pid);
    absl::StrAppend(&text, "    thread ", thread.pid, " (", Content(folder + "/comm"), "): state ",
                    std::string(1, thread.state), ", waits in ", Content(folder + "/wchan"), ", system call ",
                    Content(folder + "/syscall"), "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<StackTarget> ParseStackTarget(const std::string& text) {
  StackTarget target;
  const size_t equals = text.rfind('=');
  if (equals != std::string::npos) target.label = text.substr(0, equals);
  if (absl::SimpleAtoi(equals == std::string::npos ? text : text.substr(equals + 1), &target.pid) && target.pid > 0) {
    return target;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("stacks: ", OneLine(text), " is no process id; try: gyrerun stacks PID"));
}

absl::StatusOr<std::string> StacksOf(const StackTarget& target) {
  if (LivingThreads(target.pid).empty()) {
    return absl::NotFoundError(absl::StrCat("stacks: ", OneLine(target.label), target.label.empty() ? "" : ", ",
                                            "process ", target.pid, " is not there; try: ps -e"));
  }
  const TimePoint deadline = Now() + kStacksPatience;
  std::vector<pid_t> pids = {target.pid};
  for (const Process& process : Descendants(target.pid)) {
    if (process.state != 'Z' && pids.size() < kMostStacks) pids.push_back(process.pid);
  }
  std::string text;
  for (const pid_t pid : pids) {
    absl::StrAppend(&text, target.label.empty() ? "" : target.label + ", ", "process ", pid, " (",
                    Content(absl::StrCat("/proc/", pid, "/comm")), "):\n");
    const std::string stacks = ByTool(pid, deadline);
    text += stacks.empty() ? ByKernel(pid) : stacks;
  }
  return text;
}

}  // namespace gyre::launch
