#include "gyrerun_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "launch/descendants.h"
#include "launch/pipe.h"
#include "support/signals.h"

namespace gyre::launch {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kMark[] = "GYRERUN_TEST_MARK=";

std::string NewMark() {
  static std::atomic<int> count{0};
  return kMark + std::to_string(getpid()) + "." + std::to_string(count++) + ".";
}

UniqueFd InputOf(const std::string& text) {
  UniqueFd fd(memfd_create("input", MFD_CLOEXEC));
  EXPECT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

// Whether it lives, be it only by one thread, and has the mark. A dead main thread has no environment to show.
bool LivesWith(pid_t pid, const std::string& mark) {
  for (const Process& thread : LivingThreads(pid)) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(thread.pid) + "/environ",
                       std::ios::binary);
    const std::string environment{std::istreambuf_iterator<char>(file), {}};
    if (environment.find(mark) != std::string::npos) return true;
  }
  return false;
}

// Appends what is there; closes at the end of the stream.
void ReadInto(UniqueFd& fd, std::string& text) {
  char bytes[65536];
  const ssize_t count = read(fd.get(), bytes, sizeof bytes);
  if (count > 0) text.append(bytes, static_cast<size_t>(count));
  if (count == 0) fd.Reset();
}

}  // namespace

Gyrerun::Gyrerun(std::vector<std::string> arguments, Setup setup)
    : mark_(NewMark()), read_output_(setup.read_output), started_(steady_clock::now()) {
  Pipe out = MakePipe();
  Pipe err = MakePipe();
  const UniqueFd input = InputOf(setup.input);
  if (setup.close_output) out.read.Reset();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, setup.join_output ? out.write.get() : err.write.get(), 2);
  arguments.insert(arguments.begin(), GYRERUN_PATH);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  environment.push_back(mark_.data());
  environment.push_back(nullptr);
  const auto before = setup.ignored != 0 ? signal(setup.ignored, SIG_IGN) : SIG_DFL;
  const int error = posix_spawn(&pid_, GYRERUN_PATH, &actions, nullptr, argv.data(), environment.data());
  EXPECT_EQ(error, 0);
  if (error != 0) pid_ = -1;  // whatever it is then, it is nobody of ours
  if (setup.ignored != 0) signal(setup.ignored, before);
  posix_spawn_file_actions_destroy(&actions);
  out_ = std::move(out.read);
  err_ = std::move(err.read);
}

Gyrerun::~Gyrerun() {
  for (const pid_t pid : Alive()) kill(pid, SIGKILL);
  if (!reaped_ && pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

void Gyrerun::Signal(int signal) const {
  EXPECT_TRUE(support::SendSignal(pid_, signal)) << pid_;
}

void Gyrerun::Pump(int limit) {
  pollfd ready[] = {{read_output_ ? out_.get() : -1, POLLIN, 0}, {err_.get(), POLLIN, 0}};
  poll(ready, 2, limit);
  if (ready[0].revents != 0) ReadInto(out_, outcome_.out);
  if (ready[1].revents != 0) ReadInto(err_, outcome_.err);
}

Outcome Gyrerun::Wait(milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  while (steady_clock::now() < deadline) {
    int status = 0;
    if (!reaped_ && pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
      reaped_ = outcome_.ended = true;
      outcome_.took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - started_);
      if (WIFEXITED(status)) outcome_.code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) outcome_.signal = WTERMSIG(status);
    }
    if (reaped_ && !err_ && (!out_ || !read_output_)) break;
    Pump(5);
  }
  return outcome_;
}

bool Gyrerun::WaitForOutput(const std::string& text, milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  while (outcome_.out.find(text) == std::string::npos) {
    if (steady_clock::now() > deadline || !out_) return false;
    Pump(20);
  }
  return true;
}

std::vector<pid_t> Gyrerun::Alive() const {
  std::vector<pid_t> alive;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && LivesWith(pid, mark_)) alive.push_back(pid);
  }
  return alive;
}

bool Gyrerun::AllGone(milliseconds limit) const {
  const auto deadline = steady_clock::now() + limit;
  while (!Alive().empty()) {
    if (steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

Outcome RunToEnd(std::vector<std::string> arguments, Gyrerun::Setup setup) {
  Gyrerun gyrerun(std::move(arguments), std::move(setup));
  Outcome outcome = gyrerun.Wait();
  EXPECT_TRUE(outcome.ended) << outcome.err;
  EXPECT_TRUE(gyrerun.Alive().empty());
  return outcome;
}

Outcome RunToEnd(std::vector<std::string> arguments) {
  return RunToEnd(std::move(arguments), {});
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::vector<pid_t> children;
  for (const Process& process : Descendants(pid)) {
    if (process.parent == pid) children.push_back(process.pid);
  }
  return children;
}

}  // namespace gyre::launch
