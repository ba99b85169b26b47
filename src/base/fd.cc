#include "base/fd.h"

#include <unistd.h>

namespace gyre {

void UniqueFd::Reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

}  // namespace gyre
