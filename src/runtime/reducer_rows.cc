// What GradientReducer does with gradients that are given as rows.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "fusion/registry.h"
#include "runtime/reducer_state.h"

namespace gyre {

absl::StatusOr<int> GradientReducer::State::RegisterRows(std::string_view name, std::span<const int64_t> shape,
                                                         DType dtype) {
  if (begun_) return absl::FailedPreconditionError("gradients are registered before Start");
  ASSIGN_OR_RETURN(const int index, registry_.AddRows(name, shape, dtype));
  row_shapes_.emplace_back(index, fusion::MakeRowShape(shape, dtype));
  return index;
}

// In the order of places, which is the same on all ranks.
std::unique_ptr<internal::RowExchange> GradientReducer::State::MakeRowExchange() const {
  auto exchange = std::make_unique<internal::RowExchange>(tensors_);
  auto shapes = row_shapes_;
  for (auto& [index, shape] : shapes) index = places_[static_cast<size_t>(index)];
  std::ranges::sort(shapes, {}, [](const auto& entry) { return entry.first; });
  for (const auto& [place, shape] : shapes) exchange->Add(place, shape);
  return exchange;
}

absl::Status GradientReducer::State::GiveRows(int index, const RowsView& rows) {
  RETURN_IF_ERROR(CheckUsable());
  RETURN_IF_ERROR(CheckIndex(index));
  const int place = places_[static_cast<size_t>(index)];
  RETURN_IF_ERROR(rows_->Check(place, rows));
  RETURN_IF_ERROR(Claim(place));
  rows_->Give(place, rows);
  Complete(place);
  return absl::OkStatus();
}

RowsView GradientReducer::State::result_rows(int index) const {
  if (rows_ == nullptr || index < 0 || index >= size()) return {};
  const int place = places_[static_cast<size_t>(index)];
  return rows_->has(place) ? rows_->result(place) : RowsView();
}

absl::Status GradientReducer::State::ScatterRows(int index, TensorView dense) const {
  RETURN_IF_ERROR(CheckUsable());
  RETURN_IF_ERROR(CheckIndex(index));
  const int place = places_[static_cast<size_t>(index)];
  if (!rows_->has(place)) {
    return absl::InvalidArgumentError(absl::StrCat("gradient ", NameOf(place), " was not registered as rows"));
  }
  const fusion::RowShape& shape = rows_->shape(place);
  if (dense.count != shape.rows * shape.width || !fusion::IsGradientDType(dense.dtype) ||
      (dense.data == nullptr && dense.count > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("gradient ", NameOf(place), " has ", shape.rows * shape.width,
                                                   " floating-point elements; given were ", dense.count, " of ",
                                                   ToAbsl(DTypeName(dense.dtype))));
  }
  rows_->Scatter(place, dense);
  return absl::OkStatus();
}

absl::Status GradientReducer::State::ReduceRows() {
  const auto& settings = step_->settings();
  const double postscale =
      settings.op == ReduceOp::kAverage ? settings.postscale / communicator_->size() : settings.postscale;
  absl::Status reduced = rows_->Exchange(*communicator_, settings.prescale, postscale, call_options());
  if (reduced.ok()) return reduced;
  return Annotate(reduced, absl::StrCat("step ", steps_ + 1, ", row gradients"));
}

}  // namespace gyre
