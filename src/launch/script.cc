#include "launch/script.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "base/status.h"
#include "launch/now.h"

namespace gyre::launch {

namespace {

constexpr size_t kMostOutput = size_t{1} << 20;
constexpr Duration kBetweenScriptLooks = std::chrono::milliseconds(10);

// Until its end, or the deadline: then nothing.
std::optional<std::string> ReadOutput(int fd, TimePoint deadline) {
  std::string text;
  std::array<char, 4096> buffer;
  while (Now() < deadline && text.size() <= kMostOutput) {
    pollfd ready{fd, POLLIN, 0};
    if (poll(&ready, 1, PollMilliseconds(Now(), deadline)) <= 0) continue;
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count == 0) return text;
    if (count < 0 && errno != EINTR) return std::nullopt;
    if (count > 0) text.append(buffer.data(), static_cast<size_t>(count));
  }
  return std::nullopt;
}

// Whether it ends before the deadline: it may go on after the end of its output.
bool Ends(pid_t pid, TimePoint deadline, int& status) {
  while (true) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid || (ended < 0 && errno != EINTR)) return true;
    const TimePoint now = Now();
    if (now >= deadline) return false;
    std::this_thread::sleep_for(std::min<Duration>(kBetweenScriptLooks, deadline - now));
  }
}

struct ScriptPipe {
  UniqueFd read;
  UniqueFd write;
};

absl::StatusOr<ScriptPipe> MakeScriptPipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe2");
  return ScriptPipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void Reap(pid_t pid, int& status) {
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
}

// A process group for a script. Its first process is ours: it waits until this program has ended, whatever ends it
// (then nobody holds the pipe's other end any more), and kills the group. As long as it lives nobody else gets the
// group's number.
class ScriptGroup {
 public:
  // The first process closes its copy of `output`, so that the output's reader finds its end.
  static absl::StatusOr<ScriptGroup> Start(int output) {
    ASSIGN_OR_RETURN(ScriptPipe pipe, MakeScriptPipe());
    const pid_t pid = fork();
    if (pid < 0) return ErrnoStatus("fork");
    if (pid == 0) {
      setpgid(0, 0);
      close(output);
      pipe.write.Reset();
      char byte = 0;
      while (read(pipe.read.get(), &byte, 1) < 0 && errno == EINTR) {
      }
      kill(-getpid(), SIGKILL);
      _exit(0);
    }
    setpgid(pid, pid);
    return ScriptGroup(pid, std::move(pipe.write));
  }
  ScriptGroup(ScriptGroup&& other) noexcept
      : first_(std::exchange(other.first_, -1)), alive_(std::move(other.alive_)) {}
  ScriptGroup& operator=(ScriptGroup&&) = delete;
  // Ends the first process alone.
  ~ScriptGroup() {
    if (first_ < 0) return;
    kill(first_, SIGKILL);
    int status = 0;
    Reap(first_, status);
  }

  pid_t id() const { return first_; }

 private:
  ScriptGroup(pid_t first, UniqueFd alive) : first_(first), alive_(std::move(alive)) {}

  pid_t first_;
  UniqueFd alive_;  // the pipe's other end
};

}  // namespace

absl::StatusOr<std::string> RunScript(const std::string& command, TimePoint deadline) {
  ASSIGN_OR_RETURN(ScriptPipe output, MakeScriptPipe());
  const UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (nothing.get() < 0) return ErrnoStatus("open /dev/null");
  ASSIGN_OR_RETURN(const ScriptGroup group, ScriptGroup::Start(output.write.get()));
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus("fork");
  if (pid == 0) {
    if (setpgid(0, group.id()) != 0) _exit(127);  // the group is no more: this program has ended
    dup2(nothing.get(), 0);                       // standard input is rank 0's
    dup2(output.write.get(), 1);
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  setpgid(pid, group.id());
  output.write.Reset();
  const std::optional<std::string> text = ReadOutput(output.read.get(), deadline);
  int status = 0;
  if (!text || !Ends(pid, deadline, status)) {
    kill(-group.id(), SIGKILL);
    Reap(pid, status);
    return absl::UnavailableError("it was not done in time, or printed more than 1 MiB");
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return *text;
  return absl::UnavailableError(WIFEXITED(status) ? absl::StrCat("it exited with code ", WEXITSTATUS(status))
                                                  : absl::StrCat("signal ", WTERMSIG(status), " killed it"));
}

}  // namespace gyre::launch
