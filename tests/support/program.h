// Program: a process that a test starts, watches, signals and reads. Nothing of it outlives the test.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace gyre::support {

struct ProgramOptions {
  std::map<std::string, std::optional<std::string>> environment;  // changes to this process's; nullopt removes
  std::filesystem::path directory;                                // where it runs; empty: here
  std::filesystem::path input = "/dev/null";                      // its standard input
};

// Not thread-safe. Start it on a thread that outlives it: the program is killed when that thread ends (so that it also
// dies with a test that is killed).
class Program {
 public:
  // Starts argv[0], looked up along PATH if it has no slash. If it cannot be run it ends with exit code 127 and says so
  // on its standard error, as a shell does.
  explicit Program(const std::vector<std::string>& argv, const ProgramOptions& options = {});
  // Kills it if it still runs.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }

  // Sends a signal; nothing if it has ended.
  void Signal(int signal_number);

  // Blocks until it ends, at most `timeout`; whether it has ended.
  bool WaitFor(std::chrono::milliseconds timeout);

  // Blocks until its standard output and error hold `text`, it ends, or `timeout` passes; whether they hold it.
  bool WaitForOutput(std::string_view text, std::chrono::milliseconds timeout);

  // Once WaitFor has returned true: the exit code, or 128 + the number of the signal that killed it, as a shell has
  // it. Until then empty.
  std::optional<int> exit_code() const { return exit_code_; }
  // Likewise: processor time of it and the children it waited for.
  double cpu_seconds() const { return cpu_seconds_; }

  // What it has written so far.
  std::string out() const;
  std::string err() const;
  std::string output() const { return out() + err(); }

 private:
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  UniqueFd out_;
  UniqueFd err_;
  std::optional<int> exit_code_;
  double cpu_seconds_ = 0;
};

}  // namespace gyre::support
