// pidfd(2): a descriptor that names a process for good, whatever becomes of its number. Readable once it has ended.
#pragma once

#include <sys/types.h>

#include "base/fd.h"

namespace gyre {

// Close-on-exec; empty if there is no such process, with errno.
UniqueFd OpenPidfd(pid_t pid);

// False, with errno, if it could not be sent.
bool SignalPidfd(int pidfd, int signal);

}  // namespace gyre
