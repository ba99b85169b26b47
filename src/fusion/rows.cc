#include "fusion/rows.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/reduce.h"
#include "fusion/arithmetic.h"
#include "fusion/registry.h"

namespace gyre::fusion {

namespace {

constexpr int64_t kWord = sizeof(int64_t);

}  // namespace

RowShape MakeRowShape(std::span<const int64_t> shape, DType dtype) {
  int64_t width = 1;
  for (const int64_t dimension : shape.subspan(1)) width *= dimension;
  return {.rows = shape[0], .width = width, .dtype = dtype};
}

absl::Status CheckGiven(std::string_view name, const RowShape& shape, const RowsView& given) {
  const auto wrong = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("row gradient \"", absl::CHexEscape(ToAbsl(name)), "\" ", what...));
  };
  const int64_t count = std::ssize(given.rows) * shape.width;
  if (given.values.count != count || !IsGradientDType(given.values.dtype)) {
    return wrong("has rows of ", shape.width, " floating-point elements; given were ", given.rows.size(), " rows and ",
                 given.values.count, " elements of ", ToAbsl(DTypeName(given.values.dtype)));
  }
  if (given.values.data == nullptr && count > 0) return wrong("was given as a null pointer");
  const auto odd = std::ranges::find_if(given.rows, [&](int64_t row) { return row < 0 || row >= shape.rows; });
  if (odd == given.rows.end()) return absl::OkStatus();
  return wrong("has ", shape.rows, " rows; given was row ", *odd);
}

// A row is combined by what combines dense gradients, so that it gets the same bits.
void RowSum::Assign(std::span<const RowsView> sources, double scale_source, double scale_result) {
  const int64_t row_bytes = shape_.row_bytes();
  entries_.clear();
  for (const RowsView& source : sources) {
    const auto* values = static_cast<const std::byte*>(source.values.data);
    for (const int64_t row : source.rows) {
      entries_.push_back({row, values});
      if (row_bytes > 0) values += row_bytes;
    }
  }
  std::ranges::stable_sort(entries_, {}, &Entry::row);
  rows_.clear();
  for (const Entry& entry : entries_) {
    if (rows_.empty() || rows_.back() != entry.row) rows_.push_back(entry.row);
  }
  values_.resize(rows_.size() * static_cast<size_t>(row_bytes));
  if (row_bytes == 0) return;
  const device::Reduction reduction{.dtype = shape_.dtype, .scale_source = scale_source, .scale_result = scale_result};
  void* to = values_.data();
  for (size_t i = 0; i < entries_.size();) {
    sources_.clear();
    const int64_t row = entries_[i].row;
    for (; i < entries_.size() && entries_[i].row == row; ++i) sources_.push_back(entries_[i].values);
    device::Reduce(reduction, sources_, {&to, 1}, shape_.width);
    to = static_cast<std::byte*>(to) + row_bytes;
  }
}

void RowSum::Clear() {
  rows_.clear();
  values_.clear();
}

RowsView RowSum::view() const {
  return {rows_, {values_.data(), std::ssize(rows_) * shape_.width, shape_.dtype}};
}

TensorView RowSum::values() {
  return {values_.data(), std::ssize(rows_) * shape_.width, shape_.dtype};
}

int64_t RowSum::PackedBytes(const RowShape& shape, int64_t rows) {
  return rows * kWord + (rows * shape.row_bytes() + kWord - 1) / kWord * kWord;
}

void RowSum::Pack(std::span<std::byte> out) const {
  if (out.empty()) return;
  const auto numbers = std::as_bytes(std::span(rows_));
  std::ranges::copy(numbers, out.begin());
  const auto padding = std::ranges::copy(values_, out.begin() + std::ssize(numbers)).out;
  std::fill(padding, out.end(), std::byte{});
}

absl::Status Unpack(const RowShape& shape, int64_t rows, std::span<const std::byte> packed, RowsView& out) {
  out.rows = {reinterpret_cast<const int64_t*>(packed.data()), static_cast<size_t>(rows)};
  out.values = {packed.data() + rows * kWord, rows * shape.width, shape.dtype};
  int64_t before = -1;
  for (const int64_t row : out.rows) {
    if (row <= before || row >= shape.rows) return absl::DataLossError(absl::StrCat("row ", row, " after ", before));
    before = row;
  }
  return absl::OkStatus();
}

void Scatter(const RowSum& sum, TensorView dense) {
  const RowsView rows = sum.view();
  const int64_t width = sum.shape().width;
  if (dense.count == 0) return;
  std::memset(dense.data, 0, static_cast<size_t>(dense.bytes()));
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    const void* const from =
        static_cast<const std::byte*>(rows.values.data) + static_cast<int64_t>(i) * sum.shape().row_bytes();
    Convert({from, width, sum.shape().dtype}, dense.Slice(rows.rows[i] * width, width));
  }
}

}  // namespace gyre::fusion
