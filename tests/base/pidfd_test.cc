#include "base/pidfd.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace gyre {
namespace {

TEST(IsStopped, FollowsTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NAME, "a) T (b");  // no part of its state
    for (;;) pause();
  }
  const UniqueFd process = OpenPidfd(child);
  ASSERT_TRUE(process);
  EXPECT_EQ(IsStopped(process.get()), false);
  EXPECT_TRUE(SignalPidfd(process.get(), SIGSTOP));
  ASSERT_EQ(waitpid(child, nullptr, WUNTRACED), child);
  EXPECT_EQ(IsStopped(process.get()), true);
  EXPECT_TRUE(SignalPidfd(process.get(), SIGCONT));
  ASSERT_EQ(waitpid(child, nullptr, WCONTINUED), child);
  EXPECT_EQ(IsStopped(process.get()), false);
  EXPECT_TRUE(SignalPidfd(process.get(), SIGKILL));
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(IsStopped(process.get()), false) << "it is no more";
}

TEST(IsStopped, CannotBeSaidOfWhatIsNoProcess) {
  EXPECT_EQ(IsStopped(-1), std::nullopt);
  EXPECT_EQ(IsStopped(STDIN_FILENO), std::nullopt);
}

}  // namespace
}  // namespace gyre
