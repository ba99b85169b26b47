// What this process uses of its machine.
#pragma once

#include <chrono>
#include <cstdint>

namespace gyre::support {

// In bytes: what is resident; or, under AddressSanitizer and ThreadSanitizer, whose shadows and held-back frees have no
// bound, what is allocated on the heap and not freed (without stacks, mappings and the allocator's own waste). Only
// differences mean anything.
int64_t MemoryInUse();

int64_t OpenDescriptors();                 // the one it takes to count them included
std::chrono::nanoseconds ProcessorTime();  // of all threads so far; takes no descriptor

}  // namespace gyre::support
