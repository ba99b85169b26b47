#include "launch/process_usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/fd.h"

namespace gyre::launch {

namespace {

struct Seen {
  pid_t parent = 0;
  ProcessUsage usage;
};

// Its share of the memory that it has in common with others, in bytes; none where the system does not say.
std::optional<uint64_t> ProportionalMemory(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    unsigned long long kib = 0;
    if (sscanf(line.c_str(), "Pss: %llu kB", &kib) == 1) return uint64_t{kib} << 10;
  }
  return std::nullopt;
}

std::optional<Seen> Read(const char* pid) {
  const UniqueFd fd(open(("/proc/" + std::string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  char text[1024];
  const ssize_t length = read(fd.get(), text, sizeof text - 1);
  if (length <= 0) return std::nullopt;
  text[length] = '\0';
  // "pid (name) state ppid ... utime stime cutime cstime ... rss": the name may hold anything.
  const char* rest = std::strrchr(text, ')');
  unsigned long user = 0;
  unsigned long system = 0;
  long children_user = 0;
  long children_system = 0;
  long pages = 0;
  Seen seen;
  constexpr char kFormat[] = ") %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld %*d %*d %*d %*d %*u %*u %ld";
  if (rest == nullptr ||
      sscanf(rest, kFormat, &seen.parent, &user, &system, &children_user, &children_system, &pages) != 6) {
    return std::nullopt;
  }
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  seen.usage.cpu_seconds = (static_cast<double>(user) + static_cast<double>(system) +
                            static_cast<double>(children_user) + static_cast<double>(children_system)) /
                           ticks;
  seen.usage.memory = static_cast<uint64_t>(pages) * page;
  return seen;
}

}  // namespace

std::vector<ProcessUsage> UsageOfTrees(const std::vector<pid_t>& roots) {
  std::vector<ProcessUsage> usage(roots.size());
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (folder == nullptr) return usage;
  std::map<pid_t, Seen> all;
  while (const dirent* entry = readdir(folder.get())) {
    if (atoi(entry->d_name) <= 0) continue;
    if (const auto seen = Read(entry->d_name)) all.emplace(atoi(entry->d_name), *seen);
  }
  std::map<pid_t, size_t> index;
  for (size_t i = 0; i < roots.size(); ++i) index.emplace(roots[i], i);
  for (const auto& [pid, seen] : all) {
    // Up to the root that it belongs to, if any; no longer than there are processes, for what was read changes.
    pid_t at = pid;
    for (size_t hops = 0; hops <= all.size(); ++hops) {
      if (const auto root = index.find(at); root != index.end()) {
        usage[root->second].cpu_seconds += seen.usage.cpu_seconds;
        usage[root->second].processes.push_back(pid);
        usage[root->second].memory += ProportionalMemory(pid).value_or(seen.usage.memory);
        break;
      }
      const auto found = all.find(at);
      if (found == all.end() || found->second.parent <= 0) break;
      at = found->second.parent;
    }
  }
  return usage;
}

}  // namespace gyre::launch
