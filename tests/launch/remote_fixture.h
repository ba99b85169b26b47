// Several "hosts" on one machine: remote shells, written by the test, that run the command right here.
#pragma once

#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "gyrerun_fixture.h"
#include "support/temporary.h"

namespace gyre::launch {

inline bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
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
