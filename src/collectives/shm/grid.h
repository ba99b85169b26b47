// Grid: the members of a large group in rows and columns, for what is better done in two levels. Pure.
//
// All rows are as long as the shortest, but for one `extra` member that some have: it is in no column.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace gyre::internal {

// Where a member may run, in words that are equal on members that share it. Empty: not known, or in several.
struct Domain {
  std::string cache;   // a last-level cache
  std::string memory;  // a NUMA node

  bool operator==(const Domain&) const = default;
};

// By row, in order, its members.
using Rows = std::vector<std::vector<int>>;

// Of members whose numbers follow each other: where ranks are placed in order a row lies near together. Rows and
// columns are near the square root of `size`, without extras where that is so for two of its divisors.
Rows RowsByNumber(int size);

// Rows of the members that share a last-level cache, or a NUMA node: of the two what makes the shorter of rows and
// columns; caches if both do alike. None where members are not known to lie each in one of several, or where these hold
// numbers of members that are two or more apart, or one each. `domains`: by member.
Rows RowsByDomain(std::span<const Domain> domains);

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

// REQUIRES: rows are as said above, and `self` is in one of them.
Grid MakeGrid(const Rows& rows, int self);

}  // namespace gyre::internal
