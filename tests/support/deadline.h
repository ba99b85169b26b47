// Deadlines for the calls that tests make.
#pragma once

#include "base/clock.h"

namespace gyre::support {

inline TimePoint In(int ms) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
}

}  // namespace gyre::support
