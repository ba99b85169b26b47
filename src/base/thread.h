// Starting threads without exceptions, and without the program's signals.
#pragma once

#include <csignal>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace gyre {

// While it lives, the calling thread takes no signals, and threads that it starts take none ever: a program's handlers
// run on the program's own threads, and a signal that these block waits for its signalfd or sigwait. Signals of a
// thread's own faults (SIGSEGV, say) come all the same: blocked, they would pass over the program's crash handler.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// The thread takes no signals (SignalsBlocked). kResourceExhausted, naming `what` the thread is for, where the system
// has no room for one more.
template <typename Function>
absl::StatusOr<std::thread> StartThread(std::string_view what, Function&& function) {
  const SignalsBlocked blocked;
  try {
    return std::thread(std::forward<Function>(function));
  } catch (const std::system_error& error) {
    return Annotate(absl::ResourceExhaustedError(error.what()), what);
  }
}

}  // namespace gyre
