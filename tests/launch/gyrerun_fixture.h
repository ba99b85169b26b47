// Runs the built gyrerun as a user would, and finds what is left of it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/fd.h"
#include "gtest/gtest.h"

namespace gyre::launch {

struct Outcome {
  bool ended = false;  // false: still running at the deadline
  int code = -1;       // exit code, or -1
  int signal = 0;      // what killed gyrerun, or 0
  std::string out;
  std::string err;
  std::chrono::milliseconds took{};
};

// One gyrerun. All that it starts carries a mark in its environment. Not thread-safe.
class Gyrerun {
 public:
  struct Setup {
    std::string input = {};     // what it reads from standard input; then the end
    bool close_output = false;  // nobody reads its standard output
    bool join_output = false;   // standard error is the same pipe as standard output
    bool read_output = true;    // Wait reads the output as it comes
    int ignored = 0;            // a signal that it is started with as ignored
  };

  Gyrerun(std::vector<std::string> arguments, Setup setup);
  explicit Gyrerun(std::vector<std::string> arguments) : Gyrerun(std::move(arguments), Setup{}) {}
  ~Gyrerun();  // kills whatever is left

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;

  // Until gyrerun has ended and nobody holds its output any more, or the time is over.
  Outcome Wait(std::chrono::milliseconds limit = std::chrono::seconds(30));

  // Reads output until `text` was written to standard output; false if the time is over before.
  bool WaitForOutput(const std::string& text, std::chrono::milliseconds limit = std::chrono::seconds(20));

  // The processes that carry the mark now, gyrerun's own included.
  std::vector<pid_t> Alive() const;
  // Whether all of them are gone before the time is over.
  bool AllGone(std::chrono::milliseconds limit) const;

 private:
  void Pump(int milliseconds);

  std::string mark_;
  pid_t pid_ = -1;
  UniqueFd out_;
  UniqueFd err_;
  bool read_output_;
  bool reaped_ = false;
  std::chrono::steady_clock::time_point started_;
  Outcome outcome_;
};

// Runs `gyrerun arguments...` to its end, expects it to end in time and to leave nothing behind.
Outcome RunToEnd(std::vector<std::string> arguments, Gyrerun::Setup setup);
Outcome RunToEnd(std::vector<std::string> arguments);

// The children of `pid`.
std::vector<pid_t> ChildrenOf(pid_t pid);

}  // namespace gyre::launch
