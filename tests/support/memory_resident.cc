#include <unistd.h>

#include <fstream>

#include "support/usage.h"

namespace gyre::support {

int64_t MemoryInUse() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace gyre::support
