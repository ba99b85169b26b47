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

}  // namespace

absl::StatusOr<std::string> RunScript(const std::string& command, TimePoint deadline) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe2");
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (nothing.get() < 0) return ErrnoStatus("open /dev/null");
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus("fork");
  if (pid == 0) {
    setpgid(0, 0);
    dup2(nothing.get(), 0);  // standard input is rank 0's
    dup2(writing.get(), 1);
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  setpgid(pid, pid);
  writing.Reset();
  const std::optional<std::string> text = ReadOutput(reading.get(), deadline);
  int status = 0;
  if (!text || !Ends(pid, deadline, status)) {
    kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return absl::UnavailableError("it was not done in time, or printed more than 1 MiB");
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return *text;
  return absl::UnavailableError(WIFEXITED(status) ? absl::StrCat("it exited with code ", WEXITSTATUS(status))
                                                  : absl::StrCat("signal ", WTERMSIG(status), " killed it"));
}

}  // namespace gyre::launch
