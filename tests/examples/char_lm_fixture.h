// What tests of the built char_lm have in common.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/temporary.h"

namespace gyre {

// With --json char_lm's last line is an object; discarded JSON where it is none.
inline nlohmann::json LastLine(const std::string& out) {
  const size_t end = out.find_last_not_of('\n');
  const size_t start = out.rfind('\n', end);
  return nlohmann::json::parse(out.substr(start == std::string::npos ? 0 : start + 1), nullptr, false);
}

class CharLmTest : public testing::Test {
 protected:
  CharLmTest() {
    std::ofstream text(text_, std::ios::binary);  // words drawn unevenly, so that there is something to learn
    const std::vector<std::string> words = {"the ", "ring ", "turns ", "and ", "turns, ", "while ", "it holds.\n"};
    unsigned state = 1;
    for (int i = 0; i < 4000; ++i) {
      state = state * 1664525u + 1013904223u;
      text << words[(state >> 16) % 7 * ((state >> 24) % 7) / 6];
    }
  }

  const support::TemporaryDirectory folder_;
  const std::string text_ = folder_.path() / "text";
};

}  // namespace gyre
