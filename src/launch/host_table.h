// The table of every host's state, as lines of text. Pure.
#pragma once

#include <string>
#include <vector>

namespace gyre::launch {

struct HostRow {
  std::string host;
  std::string ranks;  // "ranks 0-3"
  bool ready = false;
  std::string state;  // one line: "ready ...", "resolve: ..."
};

// A line a host, in columns; those that are not ready first. At most 64 of them; a last line counts the others.
std::vector<std::string> HostTable(std::vector<HostRow> rows);

}  // namespace gyre::launch
