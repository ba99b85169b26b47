// gyrerun's own exit codes. Otherwise it exits with the code of the rank that failed first, or 128 + its signal.
#pragma once

namespace gyre::launch {

inline constexpr int kExitUsage = 64;           // a wrong option
inline constexpr int kExitHostfile = 65;        // a wrong line in the hostfile
inline constexpr int kExitNotStarted = 69;      // the job could not be started (resources, hosts); again may help
inline constexpr int kExitInternal = 70;        // no memory, or a fault of gyrerun itself
inline constexpr int kExitOutput = 74;          // gyrerun could not write its output
inline constexpr int kExitHalted = 75;          // the job ended at a checkpoint; started again, it goes on
inline constexpr int kExitTimeout = 124;        // --timeout
inline constexpr int kExitNotExecutable = 126;  // PROGRAM was found and cannot be executed
inline constexpr int kExitNotFound = 127;       // PROGRAM was not found
inline constexpr int kExitSignalBase = 128;     // + the signal

}  // namespace gyre::launch
