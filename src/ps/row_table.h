// RowTable: one server's part of a table: the rows that were pushed, each with its state of the optimizer, and all
// others as the initializer makes them. Pure; one thread.
//
// Updates are those of Optimizer::StepRows: rows without a gradient stay as they are, and Adam's t counts the updates
// of the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/optimizer.h"
#include "net/bytes.h"
#include "ps/row_store.h"
#include "ps/rows.h"
#include "ps/table.h"

namespace gyre::ps {

class RowTable {
 public:
  // `rule`: what a row is updated with; none: gradients are added to it. kInvalidArgument: see Check and
  // Optimizer::Create.
  static absl::StatusOr<RowTable> Create(const Table& table, const std::optional<OptimizerConfig>& rule);

  // Whether this is a push of rows (ps/rows.h).
  bool Fits(Bytes push) const { return AreRows(push, table_); }

  // One update by the mean of pushes: the sum of what they have for a row, by their number. `rate`: none: as it was.
  // REQUIRES: one push or more, all fit
  void Apply(std::span<const std::span<const float>> pushes, std::optional<float> rate);

  // How many floats the rows with these ids have; nothing if they are no such ids.
  std::optional<size_t> FloatsFor(Bytes ids) const;
  // REQUIRES: so many values
  void Read(Bytes ids, std::span<float> values) const;

  size_t touched() const { return store_.size(); }  // rows in memory

  // All of it, as bytes. Restore takes it back into a new table. kDataLoss: it does not fit.
  std::string Save() const;
  absl::Status Restore(Bytes bytes);

 private:
  RowTable(const Table& table, const std::optional<OptimizerConfig>& rule);
  std::span<float> Touch(int64_t id);
  void Update(std::span<float> row, std::span<const float> gradient) const;
  size_t columns() const { return static_cast<size_t>(table_.columns); }

  Table table_;
  uint64_t key_;
  std::optional<OptimizerConfig> rule_;
  int64_t updates_ = 0;
  RowStore store_;  // a row: its values, then its accumulators
};

}  // namespace gyre::ps
