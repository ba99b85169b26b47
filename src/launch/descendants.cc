#include "launch/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/pidfd.h"
#include "launch/now.h"

namespace gyre::launch {

namespace {

// `folder` is one of a process or of a thread: "/proc/1", "/proc/1/task/1".
std::optional<Process> ReadStat(const std::string& folder, pid_t pid) {
  const UniqueFd fd(open((folder + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  char text[1024];
  const ssize_t length = read(fd.get(), text, sizeof text - 1);
  if (length <= 0) return std::nullopt;
  text[length] = '\0';
  // "pid (name) state ppid ... starttime ...": the name may hold anything, so what counts begins after the last ')'.
  const char* rest = std::strrchr(text, ')');
  Process process;
  process.pid = pid;
  constexpr char kFormat[] = ") %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu";
  if (rest == nullptr || sscanf(rest, kFormat, &process.state, &process.parent, &process.start_ticks) != 3) {
    return std::nullopt;
  }
  return process;
}

// What is in `path`, a folder with one entry named by number for each process or thread.
std::vector<Process> ReadProcesses(const std::string& path) {
  std::vector<Process> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (folder == nullptr) return all;
  while (const dirent* entry = readdir(folder.get())) {
    const pid_t pid = atoi(entry->d_name);
    if (pid <= 0) continue;
    if (auto process = ReadStat(path + "/" + entry->d_name, pid)) all.push_back(*process);
  }
  return all;
}

// Through a descriptor, and after a second look: by now the number may belong to someone else.
void Kill(const Process& process) {
  const UniqueFd fd = OpenPidfd(process.pid);
  if (!fd) return;
  const auto now = ReadStat("/proc/" + std::to_string(process.pid), process.pid);
  if (now && now->start_ticks == process.start_ticks) SignalPidfd(fd.get(), SIGKILL);
}

}  // namespace

std::vector<Process> Descendants(pid_t root) {
  std::vector<Process> all = ReadProcesses("/proc");
  std::vector<Process> found;
  std::set<pid_t> family = {root};
  // Pids wrap around, so a child may come before its parent: go over the rest until nothing more is found.
  for (bool grown = true; grown;) {
    const auto related =
        std::partition(all.begin(), all.end(), [&](const Process& p) { return !family.count(p.parent); });
    grown = related != all.end();
    for (auto it = related; it != all.end(); ++it) {
      family.insert(it->pid);
      found.push_back(*it);
    }
    all.erase(related, all.end());
  }
  return found;
}

std::vector<Process> LivingThreads(pid_t pid) {
  std::vector<Process> threads = ReadProcesses("/proc/" + std::to_string(pid) + "/task");
  std::erase_if(threads, [](const Process& thread) { return thread.state == 'Z' || thread.state == 'X'; });
  return threads;
}

bool IsStopped(pid_t pid) {
  const std::vector<Process> threads = LivingThreads(pid);
  return !threads.empty() && std::ranges::all_of(threads, [](const Process& thread) { return thread.state == 'T'; });
}

bool KillDescendants(TimePoint deadline) {
  for (;;) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const std::vector<Process> left = Descendants(getpid());
    if (left.empty()) return true;
    if (Now() >= deadline) return false;
    // Whatever the state: where the main thread is dead, others may live. What is dead for good takes no harm.
    for (const Process& process : left) Kill(process);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void ReapOrphans(const std::vector<pid_t>& keep) {
  for (const Process& process : Descendants(getpid())) {
    if (process.state != 'Z' || process.parent != getpid()) continue;
    if (std::find(keep.begin(), keep.end(), process.pid) == keep.end()) waitpid(process.pid, nullptr, WNOHANG);
  }
}

}  // namespace gyre::launch
