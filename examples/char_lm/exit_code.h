// How the program ends, but for 128 + signal.
#pragma once

namespace char_lm {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 64;
inline constexpr int kExitHalted = 75;  // SIGTERM came, the checkpoint was written: --resume goes on

}  // namespace char_lm
