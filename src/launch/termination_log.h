// The container's last words, which Kubernetes shows with its state.
#pragma once

#include <string>
#include <string_view>

namespace gyre::launch {

inline constexpr char kTerminationLog[] = "/dev/termination-log";

// Replaces what the file holds with `text`, of which 4096 bytes at most count: the end is cut off. Does nothing where
// there is no such file, or it may not be written: then nobody waits for it.
void WriteTerminationLog(const std::string& path, std::string_view text);

}  // namespace gyre::launch
