// Rows in messages. All of it lies in floats' memory, so that it is sent and kept as gradients are: as words of 4
// bytes, little-endian, at any alignment.
//
//   ids   2 words each, in rising order
//   rows  1 word: how many; that many ids; that many rows of the table's columns each
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/bytes.h"
#include "ps/floats.h"
#include "ps/table.h"

namespace gyre::ps {

// How many ids these are; nothing if they are no ids of the table's in rising order.
std::optional<size_t> CountIds(Bytes ids, const Table& table);
int64_t IdAt(Bytes ids, size_t index);

// Whether these are rows of the table's, as above.
bool AreRows(Bytes words, const Table& table);

// Reads rows. Points into what it was made of.
class RowsReader {
 public:
  // REQUIRES: AreRows
  RowsReader(std::span<const float> words, int64_t columns);

  size_t size() const { return count_; }
  int64_t id(size_t index) const { return IdAt(ids_, index); }
  std::span<const float> row(size_t index) const { return values_.subspan(index * columns_, columns_); }

 private:
  size_t count_, columns_;
  Bytes ids_;
  std::span<const float> values_;
};

// Rows, none of them.
Floats NoRows();

// Gradients of rows for the servers that hold them, by server: of equal ids one row, their sum in the order given.
// `gradients`: the table's columns for each id. kInvalidArgument: an id that the table does not have, another number of
// gradients, or more rows for a server than a message carries.
absl::StatusOr<std::vector<Floats>> PackRows(const Table& table, int servers, std::span<const int64_t> ids,
                                             std::span<const float> gradients);

// Which rows are to come from which server, and where they go.
class RowRequest {
 public:
  // Each id once, however often it is there. Errors: as PackRows.
  static absl::StatusOr<RowRequest> Create(const Table& table, int servers, std::span<const int64_t> ids);

  const Floats& ids(int server) const { return ids_[static_cast<size_t>(server)]; }  // empty: none
  size_t FloatsFrom(int server) const { return ids(server).size() / 2 * columns_; }

  // `answers`: by server, FloatsFrom each. Fills in a row for each id that was given.
  void Spread(std::span<const Floats> answers, std::span<float> values) const;
  size_t size() const { return places_.size() * columns_; }  // floats

 private:
  size_t columns_ = 0;
  std::vector<Floats> ids_;
  std::vector<std::pair<int, size_t>> places_;  // of each id that was given: server, the how many-th of its ids
};

}  // namespace gyre::ps
