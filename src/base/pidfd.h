// pidfd(2): a descriptor that names a process for good, whatever becomes of its number. Readable once it has ended.
#pragma once

#include <sys/types.h>

#include <optional>

#include "base/fd.h"

namespace gyre {

// Close-on-exec; empty if there is no such process, with errno.
UniqueFd OpenPidfd(pid_t pid);

// False, with errno, if it could not be sent.
bool SignalPidfd(int pidfd, int signal);

// Whether a signal or a debugger holds the process up; false of one that has ended, or where /proc cannot be read just
// now. Nothing if that cannot be seen at all: it is no process, or in a namespace of processes that is not ours.
std::optional<bool> IsStopped(int pidfd);

}  // namespace gyre
