// What this process uses of its machine.
#pragma once

#include <chrono>
#include <cstdint>

namespace gyre::support {

int64_t ResidentBytes();
int64_t OpenDescriptors();                 // the one it takes to count them included
std::chrono::nanoseconds ProcessorTime();  // of all threads so far; takes no descriptor

}  // namespace gyre::support
