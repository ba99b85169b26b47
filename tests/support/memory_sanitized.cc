#include <cstddef>

#include "support/usage.h"

// Of AddressSanitizer's and ThreadSanitizer's runtimes; GCC does not ship the header that declares it.
extern "C" size_t __sanitizer_get_current_allocated_bytes();

namespace gyre::support {

int64_t MemoryInUse() {
  return static_cast<int64_t>(__sanitizer_get_current_allocated_bytes());
}

}  // namespace gyre::support
