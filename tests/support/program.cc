#include "support/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/pidfd.h"

namespace gyre::support {

namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> ChangedEnvironment(const std::map<std::string, std::optional<std::string>>& changes) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    if (!changes.contains(std::string(variable.substr(0, variable.find('='))))) variables.emplace_back(variable);
  }
  for (const auto& [name, value] : changes) {
    if (value) variables.push_back(name + "=" + *value);
  }
  return variables;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// What the new process does before it is the program: only calls that are safe after fork.
[[noreturn]] void Become(char* const* argv, char* const* environment, const ProgramOptions& options, int out, int err,
                         pid_t parent) {
  dup2(err, STDERR_FILENO);
  dup2(out, STDOUT_FILENO);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int input = open(options.input.c_str(), O_RDONLY | O_CLOEXEC);
  const bool ready = getppid() == parent && input >= 0 && dup2(input, STDIN_FILENO) >= 0 &&
                     (options.directory.empty() || chdir(options.directory.c_str()) == 0);
  if (ready) execvpe(argv[0], argv, environment);
  const char* reason = strerrordesc_np(errno);
  for (const char* part : {"cannot start ", static_cast<const char*>(argv[0]), ": ", reason, "\n"}) {
    if (write(STDERR_FILENO, part, strlen(part)) < 0) break;
  }
  _exit(127);
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[1 << 16];
  ssize_t length;
  while ((length = pread(fd, buffer, sizeof(buffer), static_cast<off_t>(text.size()))) > 0) text.append(buffer, length);
  return text;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

Program::Program(const std::vector<std::string>& argv, const ProgramOptions& options)
    : out_(memfd_create("stdout", MFD_CLOEXEC)), err_(memfd_create("stderr", MFD_CLOEXEC)) {
  const std::vector<std::string> environment = ChangedEnvironment(options.environment);
  const std::vector<char*> argv_pointers = Pointers(argv);
  const std::vector<char*> environment_pointers = Pointers(environment);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) Become(argv_pointers.data(), environment_pointers.data(), options, out_.get(), err_.get(), parent);
  if (pid_ > 0) pidfd_ = OpenPidfd(pid_);
  if (!pidfd_) ADD_FAILURE() << "cannot start " << argv[0] << ": " << strerrordesc_np(errno);
}

Program::~Program() {
  if (pid_ <= 0 || exit_code_) return;
  Signal(SIGKILL);
  if (!WaitFor(std::chrono::seconds(30))) ADD_FAILURE() << "process " << pid_ << " does not die";
}

void Program::Signal(int signal_number) {
  if (pid_ > 0 && !exit_code_) kill(pid_, signal_number);
}

bool Program::WaitFor(std::chrono::milliseconds timeout) {
  if (exit_code_ || pid_ <= 0) return true;
  const auto deadline = Clock::now() + timeout;
  pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const int ready = poll(&ended, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30)));
    if (ready > 0) break;
    if (ready == 0) return false;
    if (errno != EINTR) return false;
  }
  int status = 0;
  rusage usage{};
  if (wait4(pid_, &status, 0, &usage) != pid_) return false;
  exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  cpu_seconds_ = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  return true;
}

bool Program::WaitForOutput(std::string_view text, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (true) {
    const bool ended = WaitFor(std::chrono::milliseconds(0));
    if (output().find(text) != std::string::npos) return true;
    if (ended || Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::string Program::out() const {
  return ReadAll(out_.get());
}
std::string Program::err() const {
  return ReadAll(err_.get());
}

}  // namespace gyre::support
