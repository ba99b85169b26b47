// The ranks of a test: as threads of this process, or as processes of their own.
//
//   TEST(Broadcast, ReachesEveryRank) {
//     support::RunProcesses(4, [](const support::Rank& rank) { ... EXPECT_EQ(...) ... });
//   }
//
// A process is this very test binary, started again with a filter that leaves only this test: what stands in the test
// before the call runs in every child too, then the child runs the body and exits. What happens in a child is a
// failure of the test: a failed expectation (its output is printed), a death, a hang (killed at the time-out), a body
// that was never reached. Children inherit nothing but the environment, so that sanitizers and threads are at ease.
// GYRE_TEST_SLOWER makes all time-outs longer (support/slower.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/program.h"

namespace gyre::support {

// Which rank a body is. Converts to its number, so that a body may take an int.
struct Rank {
  int rank = 0;
  int size = 1;
  std::filesystem::path directory;  // the group's own temporary folder, empty at the start, removed at the end
  std::string name;                 // a unique name that the group shares: a job id, a socket

  operator int() const { return rank; }  // NOLINT(google-explicit-constructor)
};

using Body = std::function<void(const Rank& rank)>;

// Runs body(0) to body(size - 1) on a thread each and joins them. There is no time-out but CTest's.
void RunThreads(int size, const Body& body);

inline constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::seconds(60);

// Runs each body in a process of its own and waits for all; a body that calls GTEST_SKIP skips the test.
void RunProcesses(int size, const Body& body, std::chrono::milliseconds timeout = kDefaultTimeout);

// For suites that run the same test both ways.
enum class Mode { kThreads, kProcesses };
void RunRanks(Mode mode, int size, const Body& body);
std::string ModeName(Mode mode);  // "Threads", "Processes"

// Whether this process is a rank that RunProcesses or ProcessGroup started.
bool InChild();

// RunProcesses with the processes in the test's hands: to signal them, to read them, to expect other ends.
// In a child the constructor runs the body and does not return. A test makes one ProcessGroup at most, and calls
// RunProcesses before it, if at all.
class ProcessGroup {
 public:
  ProcessGroup(int size, const Body& body, std::chrono::milliseconds timeout = kDefaultTimeout);
  // Kills what is left.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int size() const { return static_cast<int>(programs_.size()); }
  Program& operator[](int rank) { return *programs_[rank]; }
  const std::filesystem::path& directory() const;

  // Waits for the rank, until the group's time-out, and fails the test unless its body ran and nothing in it failed.
  void ExpectSuccess(int rank);
  void ExpectAllSucceed();
  // Waits likewise and expects the exit code (128 + signal if a signal ended it).
  void ExpectExitCode(int rank, int exit_code);

 private:
  struct State;

  std::string Describe(int rank) const;

  std::unique_ptr<State> state_;
  std::vector<std::unique_ptr<Program>> programs_;
};

}  // namespace gyre::support
