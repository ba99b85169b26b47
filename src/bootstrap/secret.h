// The job's secret: where it comes from and how it is handed on. Never on a command line, in a variable or in a log.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/environment.h"
#include "base/fd.h"

namespace gyre {

inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 4096;

// 32 random bytes.
absl::StatusOr<std::string> MakeSecret();

// A sealed memory file that holds the secret and, not being close-on-exec, is inherited by children, and by theirs
// until one reads it: they find it by GYRE_SECRET_FD. kInvalidArgument: too short or too long.
absl::StatusOr<UniqueFd> MakeSecretFd(std::string_view secret);

// The counterpart. Reads without moving the file's offset, so that any number of processes may read the same one. The
// descriptor stays open in this process, and becomes close-on-exec: programs that it starts from now on do not get the
// secret (docs/decisions/secret_descriptor.md). kFailedPrecondition: not such a file; says what may have become of it.
absl::StatusOr<std::string> ReadSecretFd(int fd);

// The whole file is the secret, but for line ends at its end. kFailedPrecondition unless it is a regular file of this
// user that nobody else may read or write; says what to do (`chmod 600 FILE`).
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

// This user's directory for what the ranks of one host share: $XDG_RUNTIME_DIR/gyre where that is usable, or else
// /tmp/gyre-<uid>; made with mode 0700. kFailedPrecondition: it belongs to somebody else, is open to others, or is a
// link.
absl::StatusOr<std::string> UserDirectory(const Environment& environment);

// This user's own secret in UserDirectory, made on first use: for ranks of one host whose launcher gives them none.
// Processes that make it at the same time get the same one.
absl::StatusOr<std::string> UserSecret(const Environment& environment);

}  // namespace gyre
