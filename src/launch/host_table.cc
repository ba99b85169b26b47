#include "launch/host_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gyre::launch {

namespace {

constexpr size_t kMostRows = 64;

std::string Padded(const std::string& text, size_t width) {
  return text + std::string(std::max(width, text.size()) - text.size(), ' ');
}

}  // namespace

std::vector<std::string> HostTable(std::vector<HostRow> rows) {
  std::ranges::stable_sort(rows, {}, &HostRow::ready);
  const auto all_ready = static_cast<size_t>(std::ranges::count_if(rows, &HostRow::ready));
  const size_t told = std::min(rows.size(), kMostRows);
  size_t host_width = 0;
  size_t ranks_width = 0;
  for (size_t i = 0; i < told; ++i) {
    host_width = std::max(host_width, rows[i].host.size());
    ranks_width = std::max(ranks_width, rows[i].ranks.size());
  }
  std::vector<std::string> lines;
  size_t ready_told = 0;
  for (size_t i = 0; i < told; ++i) {
    const HostRow& row = rows[i];
    ready_told += row.ready ? 1 : 0;
    lines.push_back(
        absl::StrCat("  ", Padded(row.host, host_width), "  ", Padded(row.ranks, ranks_width), "  ", row.state));
  }
  if (told < rows.size()) {
    lines.push_back(
        absl::StrCat("  and ", rows.size() - told, " more hosts, ", all_ready - ready_told, " of them ready"));
  }
  return lines;
}

}  // namespace gyre::launch
