#include "base/thread.h"

#include <csignal>
#include <string>

#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::IsOk;

sigset_t OwnMask() {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return mask;
}

TEST(StartThread, TheThreadTakesNoSignalsButThoseOfItsOwnFaults) {
  sigset_t its;
  auto thread = StartThread("a test", [&] { its = OwnMask(); });
  ASSERT_THAT(thread, IsOk());
  thread->join();
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD, SIGALRM, SIGPROF, SIGRTMIN}) {
    EXPECT_EQ(sigismember(&its, signal), 1) << signal;
  }
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) EXPECT_EQ(sigismember(&its, fault), 0) << fault;
}

TEST(StartThread, TheCallersMaskIsWhatItWas) {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR2);
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, &wanted, &before);
  auto thread = StartThread("a test", [] {});
  const sigset_t after = OwnMask();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_THAT(thread, IsOk());
  thread->join();
  for (const int signal : {SIGTERM, SIGUSR1, SIGSEGV}) EXPECT_EQ(sigismember(&after, signal), 0) << signal;
  EXPECT_EQ(sigismember(&after, SIGUSR2), 1);
}

}  // namespace
}  // namespace gyre
