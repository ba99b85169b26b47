// Time-outs of tests that a tool slows down.
#pragma once

#include <chrono>

namespace gyre::support {

// `time`, as many times as the environment's GYRE_TEST_SLOWER says: a whole number from 1 to 1000, for runs under a
// tool that makes programs slower (scripts/test-gpu). Where it is not set, or is anything else, `time` itself.
std::chrono::milliseconds Slower(std::chrono::milliseconds time);

}  // namespace gyre::support
