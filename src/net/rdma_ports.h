// Which ports of this machine's RDMA adapters a program could use.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gyre {

// "mlx5_0/1", ...: the ports that are active, of channel adapters (InfiniBand or RoCE; not iWARP, nor what only its
// maker's library drives), whose device file this process may read and write. A container often shows its host's
// adapters under /sys without such a file. `root`: of the file system that has /sys and /dev. In the order of their
// names; empty where nothing can be read.
std::vector<std::string> UsableRdmaPorts(const std::filesystem::path& root = "/");

}  // namespace gyre
