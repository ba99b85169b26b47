// A child of the test's process that is forked, and does not exec: what it has of the process's objects are copies.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <thread>

#include "gtest/gtest.h"
#include "support/slower.h"

namespace gyre::support {

// Runs the body in a forked child and waits for its end: a status of waitpid(2). A body that returns ends it with 0, or
// with 1 where an expectation failed in it (its output is the test's). The test fails if the child is still there after
// `patience`, and the child is killed.
inline int RunForked(const std::function<void()>& body, std::chrono::milliseconds patience = std::chrono::seconds(20)) {
  std::cout << std::flush;
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::cout << std::flush;
    std::fflush(stdout);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  EXPECT_GT(child, 0);
  int status = 0;
  const auto deadline = std::chrono::steady_clock::now() + Slower(patience);
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= deadline) {
      ADD_FAILURE() << "the forked child hangs";
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return status;
}

}  // namespace gyre::support
