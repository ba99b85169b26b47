// Rows: how gradients that are given as rows add up, on one rank and over all of them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "gyre/rows.h"

namespace gyre::fusion {

// The parameter: so many rows of so many elements each.
struct RowShape {
  int64_t rows = 0;
  int64_t width = 0;
  DType dtype = DType::kF32;

  int64_t row_bytes() const { return width * DTypeSize(dtype); }
};

// Of shape[0] rows. REQUIRES: at least one dimension, none negative (fusion::Registry has looked).
RowShape MakeRowShape(std::span<const int64_t> shape, DType dtype);

// Whether a program may give this for a gradient of that shape: kInvalidArgument names the gradient, and the row that
// it does not have.
absl::Status CheckGiven(std::string_view name, const RowShape& shape, const RowsView& given);

// The sum of rows from several sources: each row once, in rising order.
class RowSum {
 public:
  explicit RowSum(const RowShape& shape) : shape_(shape) {}

  const RowShape& shape() const { return shape_; }

  // Becomes scale_result times the sum of (scale_source * row) over all rows of all sources. What has one number is
  // added in the order of sources, and in that of the rows within a source: equal sources make equal bits. As in dense
  // reductions, half types are added up in float and rounded once.
  // REQUIRES: sources have the shape's dtype and width, and only rows that it has; none is this object's own view.
  void Assign(std::span<const RowsView> sources, double scale_source, double scale_result);

  void Clear();

  // Valid until the next change.
  RowsView view() const;
  TensorView values();  // the same memory as view().values, to be changed

  // As they travel: the numbers, then the values, padded to 8 bytes.
  int64_t packed_bytes() const { return PackedBytes(shape_, std::ssize(rows_)); }
  static int64_t PackedBytes(const RowShape& shape, int64_t rows);
  void Pack(std::span<std::byte> out) const;  // REQUIRES: packed_bytes() of them, aligned to 8 bytes

 private:
  struct Entry {
    int64_t row;
    const std::byte* values;
  };

  RowShape shape_;
  std::vector<int64_t> rows_;
  std::vector<std::byte> values_;
  std::vector<Entry> entries_;        // kept for their memory
  std::vector<const void*> sources_;  // likewise: of one row
};

// What Pack wrote, in place. kDataLoss unless rows are in rising order and within the shape: what comes from another
// rank is looked at before it is used. REQUIRES: PackedBytes(shape, rows) bytes, aligned to 8.
absl::Status Unpack(const RowShape& shape, int64_t rows, std::span<const std::byte> packed, RowsView& out);

// All elements of the parameter: zeros but for the rows of `sum`. REQUIRES: as many elements; floating-point.
void Scatter(const RowSum& sum, TensorView dense);

}  // namespace gyre::fusion
