#include "stop_signal.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace char_lm {

StopSignal::StopSignal() {
  sigset_t set;
  sigemptyset(&set);
  // One that is ignored (nohup, a script's background) stays so: once blocked, it would be queued all the same.
  for (const int number : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  signals_ = signalfd(-1, &set, SFD_CLOEXEC);
  ending_ = eventfd(0, EFD_CLOEXEC);
  if (signals_ < 0 || ending_ < 0) return;  // out of descriptors: the signals keep their default meaning
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { Watch(); });
}

StopSignal::~StopSignal() {
  const uint64_t one = 1;
  if (thread_.joinable() && write(ending_, &one, sizeof(one)) == sizeof(one)) thread_.join();
  if (signals_ >= 0) close(signals_);
  if (ending_ >= 0) close(ending_);
}

void StopSignal::Watch() {
  pollfd waits[2] = {{signals_, POLLIN, 0}, {ending_, POLLIN, 0}};
  while (true) {
    if (poll(waits, 2, -1) < 0) continue;
    if (waits[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signals_, &info, sizeof(info)) != sizeof(info)) continue;
    const int number = static_cast<int>(info.ssi_signo);
    if (!armed_ || received_ != 0) std::_Exit(128 + number);
    received_ = number;
  }
}

}  // namespace char_lm
