// Grid: the members of a large group in rows and columns, for what is better done in two levels. Pure.
//
// Rows are members whose numbers follow each other, so that where ranks are placed in order a row shares a socket or a
// cache. All rows are as long as the shortest, but for one `extra` member that some have: it is in no column.
#pragma once

#include <vector>

namespace gyre::internal {

struct Grid {
  int rows = 1;
  int columns = 1;
  int row = 0;     // of this member
  int column = 0;  // likewise; `columns` for an extra

  std::vector<int> row_members;     // of this member's row, in order, extras too
  std::vector<int> column_members;  // of this member's column, by row; empty for an extra

  // Whom this member meets between rows: its column, and the extras with column 0. So whoever has met its column, then
  // its row, knows that every member of the group has come to the first of the two.
  std::vector<int> column_meeting;

  bool extra() const { return column == columns; }
};

// REQUIRES: 0 <= self < size. Rows and columns are near the square root of `size`, without extras where that is so for
// two of its divisors.
Grid MakeGrid(int size, int self);

}  // namespace gyre::internal
