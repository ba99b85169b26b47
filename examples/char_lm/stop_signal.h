// SIGINT and SIGTERM as something the training loop asks about between steps.
#pragma once

#include <atomic>
#include <thread>

namespace char_lm {

// Make it before any other thread, which then leaves the two signals to it. One a process, as signals are the
// process's. Until Arm is called a signal ends the process at once with 128 + its number; after, the first one is only
// noted, and the second ends the process. A signal that was ignored when it was made stays so.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  void Arm() { armed_ = true; }
  int received() const { return received_; }  // the number of the signal, or 0

 private:
  void Watch();

  int signals_ = -1;  // signalfd
  int ending_ = -1;   // eventfd: tells the thread to end
  std::atomic<bool> armed_ = false;
  std::atomic<int> received_ = 0;
  std::thread thread_;
};

}  // namespace char_lm
