#include "net/rdma_ports.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gyre {

namespace {

using std::filesystem::path;

std::vector<path> EntriesOf(const path& folder) {
  std::error_code error;
  std::vector<path> entries;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    entries.push_back(entry->path());
  }
  std::ranges::sort(entries);
  return entries;
}

std::string FirstLine(const path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

// The adapters that this process may open.
std::set<std::string> OpenableAdapters(const path& root) {
  std::set<std::string> adapters;
  for (const path& device : EntriesOf(root / "sys/class/infiniband_verbs")) {
    const path file = root / "dev/infiniband" / device.filename();
    if (access(file.c_str(), R_OK | W_OK) == 0) adapters.insert(FirstLine(device / "ibdev"));
  }
  return adapters;
}

}  // namespace

std::vector<std::string> UsableRdmaPorts(const path& root) {
  std::vector<std::string> ports;
  const std::set<std::string> openable = OpenableAdapters(root);
  for (const path& adapter : EntriesOf(root / "sys/class/infiniband")) {
    const std::string name = adapter.filename();
    if (!openable.contains(name) || !absl::StartsWith(FirstLine(adapter / "node_type"), "1:")) continue;
    for (const path& port : EntriesOf(adapter / "ports")) {
      const bool active = absl::StartsWith(FirstLine(port / "state"), "4:");
      if (active) ports.push_back(absl::StrCat(name, "/", port.filename().string()));
    }
  }
  return ports;
}

}  // namespace gyre
