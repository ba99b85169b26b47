// How much memory this process uses, for tests that bound it.
#pragma once

#include <cstdint>

namespace gyre::support {

// In bytes: what is resident; or, under AddressSanitizer and ThreadSanitizer, whose shadows and held-back frees have no
// bound, what is allocated on the heap and not freed (without stacks, mappings and the allocator's own waste). Only
// differences mean anything.
int64_t MemoryInUse();

}  // namespace gyre::support
