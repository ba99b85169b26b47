#include "collectives/shm/grid.h"

#include <cmath>
#include <cstdint>

namespace gyre::internal {

namespace {

int RowsOf(int size) {
  const int root = static_cast<int>(std::sqrt(size));
  for (int rows = root; 3 * rows > 2 * root; --rows) {
    if (size % rows == 0) return rows;
  }
  return root;
}

}  // namespace

Grid MakeGrid(int size, int self) {
  Grid grid;
  grid.rows = RowsOf(size);
  grid.columns = size / grid.rows;
  std::vector<int> extras;
  const auto begin_of = [&](int row) { return static_cast<int>(static_cast<int64_t>(size) * row / grid.rows); };
  for (int row = 0; row < grid.rows; ++row) {
    if (begin_of(row + 1) - begin_of(row) > grid.columns) extras.push_back(begin_of(row + 1) - 1);
    if (self < begin_of(row) || self >= begin_of(row + 1)) continue;
    grid.row = row;
    grid.column = self - begin_of(row);
    for (int member = begin_of(row); member < begin_of(row + 1); ++member) grid.row_members.push_back(member);
  }
  const int met = grid.extra() ? 0 : grid.column;
  for (int row = 0; row < grid.rows; ++row) grid.column_meeting.push_back(begin_of(row) + met);
  if (!grid.extra()) grid.column_members = grid.column_meeting;
  if (met == 0) grid.column_meeting.insert(grid.column_meeting.end(), extras.begin(), extras.end());
  return grid;
}

}  // namespace gyre::internal
