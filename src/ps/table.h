// Table: a matrix of which a step needs only some rows, as of embeddings. Servers share its rows by hash, and hold
// those that were pushed; all others are made by the table's initializer whenever they are asked for.
//
// Rows are hashed one by one. Ids are often in order of frequency, or in runs: ranges, and blocks too, would leave one
// server with what everybody needs. Nothing is won by neighbours that lie together, for a server finds its rows by hash
// anyway; and a worker sends a row once a step however often it needs it, so that frequent rows weigh no more than
// others. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "gyre/row_initializer.h"
#include "net/bytes.h"

namespace gyre::ps {

// A message carries at most so many floats of a table's: 64 MiB.
inline constexpr int64_t kMostRowWords = int64_t{16} << 20;

struct Table {
  std::string name{};      // not empty, not twice, not a tensor's
  int64_t rows = 0;        // at most 2^48
  int64_t columns = 1;     // at least 1, at most 2^20
  RowInitializer first{};  // values
};

// kInvalidArgument says what is out of its range.
absl::Status Check(const Table& table);

// What hashes of the table's rows begin with.
uint64_t KeyOf(const Table& table);

// Which server holds the row. `key`: KeyOf(table).
int ServerOf(uint64_t key, int64_t row, int servers);

// The row's first values. REQUIRES: a place for each column
void MakeRow(const Table& table, uint64_t key, int64_t row, std::span<float> values);

// In setups and fingerprints: docs/wire_format.md.
void Write(WireWriter& writer, const Table& table);
Table ReadTable(WireReader& reader);  // to be checked: by reader.ok(), and Check

}  // namespace gyre::ps
