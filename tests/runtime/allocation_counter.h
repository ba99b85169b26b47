// Counts what operator new is asked for. The program that links this has an operator new of its own.
#pragma once

#include <cstdint>

namespace gyre::support {

// Allocations of this process so far, by all its threads.
int64_t AllocationCount();

}  // namespace gyre::support
