#include "collectives/shm/grid.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>

namespace gyre::internal {

namespace {

int RowCount(int size) {
  const int root = static_cast<int>(std::sqrt(size));
  for (int rows = root; 3 * rows > 2 * root; --rows) {
    if (size % rows == 0) return rows;
  }
  return root;
}

size_t Shortest(const Rows& rows) {
  return std::ranges::min_element(rows, {}, &std::vector<int>::size)->size();
}

size_t Longest(const Rows& rows) {
  return std::ranges::max_element(rows, {}, &std::vector<int>::size)->size();
}

// How many members one meets at most.
size_t Extent(const Rows& rows) {
  return std::max(rows.size(), Longest(rows));
}

// In the order of their first members; none where these are no rows of a grid.
Rows RowsBy(std::string Domain::*where, std::span<const Domain> domains) {
  Rows rows;
  std::map<std::string, size_t> known;
  for (size_t m = 0; m < domains.size(); ++m) {
    const std::string& name = domains[m].*where;
    if (name.empty()) return {};
    const auto [row, is_new] = known.try_emplace(name, rows.size());
    if (is_new) rows.emplace_back();
    rows[row->second].push_back(static_cast<int>(m));
  }
  const bool even = rows.size() >= 2 && Shortest(rows) >= 2 && Longest(rows) <= Shortest(rows) + 1;
  return even ? rows : Rows();
}

}  // namespace

Rows RowsByNumber(int size) {
  const int count = RowCount(size);
  Rows rows(static_cast<size_t>(count));
  int member = 0;
  for (int row = 0; row < count; ++row) {
    const auto end = static_cast<int>(static_cast<int64_t>(size) * (row + 1) / count);
    while (member < end) rows[static_cast<size_t>(row)].push_back(member++);
  }
  return rows;
}

Rows RowsByDomain(std::span<const Domain> domains) {
  Rows caches = RowsBy(&Domain::cache, domains);
  Rows nodes = RowsBy(&Domain::memory, domains);
  if (caches.empty()) return nodes;
  return nodes.empty() || Extent(caches) <= Extent(nodes) ? caches : nodes;
}

Grid MakeGrid(const Rows& rows, int self) {
  Grid grid;
  grid.rows = static_cast<int>(rows.size());
  grid.columns = static_cast<int>(Shortest(rows));
  std::vector<int> extras;
  for (size_t row = 0; row < rows.size(); ++row) {
    const std::vector<int>& members = rows[row];
    if (members.size() > static_cast<size_t>(grid.columns)) extras.push_back(members.back());
    const auto found = std::ranges::find(members, self);
    if (found == members.end()) continue;
    grid.row = static_cast<int>(row);
    grid.column = static_cast<int>(found - members.begin());
    grid.row_members = members;
  }
  const auto met = static_cast<size_t>(grid.extra() ? 0 : grid.column);
  for (const std::vector<int>& members : rows) grid.column_meeting.push_back(members[met]);
  if (!grid.extra()) grid.column_members = grid.column_meeting;
  if (met == 0) grid.column_meeting.insert(grid.column_meeting.end(), extras.begin(), extras.end());
  return grid;
}

}  // namespace gyre::internal
