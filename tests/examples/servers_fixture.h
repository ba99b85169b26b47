// The built char_lm through parameter servers, under the built gyrerun.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "examples/char_lm_fixture.h"
#include "support/program.h"
#include "support/signals.h"

namespace gyre {

class CharLmByServers : public CharLmTest {
 protected:
  using Program = support::Program;

  static constexpr auto kLimit = std::chrono::seconds(100);

  std::vector<std::string> Command(const std::vector<std::string>& launch,
                                   const std::vector<std::string>& options) const {
    std::vector<std::string> command = {GYRERUN_PATH, "-np", "2"};
    command.insert(command.end(), launch.begin(), launch.end());
    for (const char* word : {CHAR_LM_PATH, "--text", text_.c_str(), "--batch", "300", "--json", "--loss-file"}) {
      command.emplace_back(word);
    }
    command.push_back(losses_);
    command.insert(command.end(), options.begin(), options.end());
    return command;
  }

  double BitsOf(const std::vector<std::string>& launch, const std::vector<std::string>& options) const {
    Program program(Command(launch, options));
    EXPECT_TRUE(program.WaitFor(kLimit)) << program.output();
    EXPECT_EQ(program.exit_code(), 0) << program.output();
    const nlohmann::json json = LastLine(program.out());
    return json.is_object() ? json["heldout_bits_per_char"].get<double>() : -1;
  }

  // How many steps rank 0 has made, so far as they are on the disk; waits until it is so many.
  bool WaitForSteps(int64_t steps) const {
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    while (std::chrono::steady_clock::now() < deadline) {
      std::ifstream file(losses_);
      int64_t step = 0, last = 0;
      char comma = 0;
      double loss = 0;
      while (file >> step >> comma >> loss) last = step;
      if (last >= steps) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // polls a file: nothing tells of it
    }
    return false;
  }

  // Of the process of that name, as gyrerun has told it; or nothing.
  static std::optional<pid_t> PidOf(const Program& program, const std::string& name) {
    const std::string text = program.output();
    std::smatch found;
    if (!std::regex_search(text, found, std::regex(name + ": pid ([0-9]+)"))) return std::nullopt;
    return std::stoi(found[1]);
  }

  // False: it is not known, or cannot be signalled.
  static bool Signal(const Program& program, const std::string& name, int signal) {
    const std::optional<pid_t> pid = PidOf(program, name);
    return pid && support::SendSignal(*pid, signal);
  }

  // In order, after so many steps.
  static void ExpectEnd(Program& program, int64_t steps) {
    ASSERT_TRUE(program.WaitFor(kLimit)) << program.output();
    EXPECT_EQ(program.exit_code(), 0) << program.output();
    EXPECT_EQ(LastLine(program.out())["steps"], steps) << program.output();
  }

  const std::string losses_ = folder_.path() / "losses";
};

}  // namespace gyre
