// How the program ends, but for 128 + signal.
#pragma once

namespace char_lm {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 64;

}  // namespace char_lm
