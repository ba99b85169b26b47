// A rank for survival_test: leaves behind a process, out of its session and its parentage, whose main thread has ended
// while another one runs: to a quick look at its state it is dead. Says "ready" once that is so, then exits.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "launch/descendants.h"

namespace {

// In the grandchild.
[[noreturn]] void LoseTheMainThread() {
  setsid();
  std::thread([] {
    while (true) pause();
  }).detach();
  pthread_exit(nullptr);
}

// Whether the main thread of `pid` is gone, and another is not. (A sanitizer may have a thread of its own.)
bool IsHeadless(pid_t pid) {
  const auto threads = gyre::launch::LivingThreads(pid);
  return !threads.empty() && std::ranges::none_of(threads, [&](const auto& thread) { return thread.pid == pid; });
}

}  // namespace

int main() {
  int ends[2];
  if (pipe(ends) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = fork();
    if (grandchild == 0) LoseTheMainThread();
    _exit(write(ends[1], &grandchild, sizeof(grandchild)) == sizeof(grandchild) ? 0 : 1);
  }
  pid_t grandchild = 0;
  if (child < 0 || read(ends[0], &grandchild, sizeof(grandchild)) != sizeof(grandchild) || grandchild < 0) return 1;
  while (!IsHeadless(grandchild)) usleep(1000);
  std::puts("ready");
  return 0;
}
