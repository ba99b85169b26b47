// Several "hosts" on one machine: remote shells, written by the test, that run the command right here.
#pragma once

#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "gyrerun_fixture.h"
#include "support/temporary.h"

namespace gyre::launch {

inline bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// What gyrerun said without the table of hosts, whose lines are indented.
inline std::string WithoutTable(const std::string& text) {
  std::istringstream lines(text);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("gyrerun:   ")) rest += line + "\n";
  }
  return rest;
}

// gyrerun said exactly this line, and perhaps told of every host, and started nothing.
inline void ExpectLine(const Outcome& outcome, int code, const std::string& line) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(WithoutTable(outcome.err), "gyrerun: " + line + "\n");
  EXPECT_EQ(outcome.out, "");
}

// gyrerun said one line with these parts and what to try, and started nothing.
inline void ExpectRefusal(const Outcome& outcome, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.err.starts_with("gyrerun: ") && Has(outcome.err, "; try: ")) << outcome.err;
  const std::string line = WithoutTable(outcome.err);
  EXPECT_EQ(line.find('\n'), line.size() - 1) << outcome.err;
  for (const std::string& part : parts) EXPECT_TRUE(Has(outcome.err, part)) << part << "\n" << outcome.err;
}

class RemoteTest : public testing::Test {
 protected:
  // A script in the test's folder; its path. $1 is the host, the rest the command.
  std::string Script(const std::string& name, const std::string& body) const {
    const std::string path = folder_.path() / name;
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    EXPECT_EQ(chmod(path.c_str(), 0755), 0);
    return path;
  }

  // Runs the command on this machine, as ssh would: joined, and through a shell.
  std::string PlainShell() const { return Script("rsh", "shift; exec sh -c \"exec $*\""); }

  static std::vector<std::string> Over(const std::string& hosts, const std::string& shell,
                                       std::vector<std::string> options, std::vector<std::string> command) {
    std::vector<std::string> arguments = {"-H", hosts, "--remote-shell", shell, "--interface", "lo"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), command.begin(), command.end());
    return arguments;
  }
  // On hosts a (2 ranks) and b (1 rank).
  std::vector<std::string> OnTwo(const std::string& script, std::vector<std::string> options = {}) const {
    return Over("a:2,b:1", PlainShell(), std::move(options), {"sh", "-c", script});
  }

  support::TemporaryDirectory folder_;
};

}  // namespace gyre::launch
