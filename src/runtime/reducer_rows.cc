// What GradientReducer does with gradients that are given as rows.
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "fusion/registry.h"
#include "runtime/reducer_state.h"

namespace gyre {

namespace {

absl::Status CheckOnHost(const Device& device) {
  if (!device.on_gpu()) return absl::OkStatus();
  return absl::InvalidArgumentError("they were registered on the host");
}

}  // namespace

absl::StatusOr<int> GradientReducer::State::RegisterRows(std::string_view name, std::span<const int64_t> shape,
                                                         DType dtype, const Device& device) {
  RETURN_IF_ERROR(CheckRegistration(name, device));
  ASSIGN_OR_RETURN(const int index, registry_.AddRows(name, shape, dtype));
  devices_.push_back(device);
  row_shapes_.emplace_back(index, fusion::MakeRowShape(shape, dtype));
  return index;
}

// In the order of places, which is the same on all ranks.
std::unique_ptr<internal::RowExchange> GradientReducer::State::MakeRowExchange() const {
  const int ranks = communicator_->size();
  const double divisor = options_.op == ReduceOp::kAverage ? ranks : 1;
  const internal::RowExchange::Settings settings{
      .ranks = ranks, .scale_source = options_.prescale, .scale_result = postscale() / divisor};
  auto exchange = std::make_unique<internal::RowExchange>(tensors_, settings);
  auto shapes = row_shapes_;
  for (auto& [index, shape] : shapes) index = places_[static_cast<size_t>(index)];
  std::ranges::sort(shapes, {}, [](const auto& entry) { return entry.first; });
  for (const auto& [place, shape] : shapes) exchange->Add(place, shape);
  return exchange;
}

absl::Status GradientReducer::State::MakeRowsOnGpu(const std::shared_ptr<device::Gpu>& gpu) {
  rows_on_gpu_ = std::make_unique<internal::RowsOnGpu>(gpu, tensors_.size());
  for (const auto& [index, shape] : row_shapes_) {
    const auto registered = static_cast<size_t>(index);
    RETURN_IF_ERROR(rows_on_gpu_->Add(places_[registered], shape, devices_[registered].stream));
  }
  return absl::OkStatus();
}

absl::Status GradientReducer::State::GiveRows(int index, const RowsView& rows) {
  RETURN_IF_ERROR(CheckUsable());
  RETURN_IF_ERROR(CheckIndex(index));
  const int place = places_[static_cast<size_t>(index)];
  RETURN_IF_ERROR(rows_->Check(place, rows));
  const bool on_gpu = rows_on_gpu_ != nullptr;
  const absl::Status here = on_gpu ? rows_on_gpu_->Check(rows) : CheckOnHost(rows.values.device);
  if (!here.ok()) return Annotate(here, absl::StrCat("the rows of gradient ", NameOf(place)));
  RETURN_IF_ERROR(Claim(place));
  if (on_gpu) {
    rows_on_gpu_->Give(place, rows);
  } else {
    rows_->Give(place, rows);
  }
  Complete(place);
  return absl::OkStatus();
}

RowsView GradientReducer::State::result_rows(int index) const {
  if (rows_ == nullptr || index < 0 || index >= size()) return {};
  const int place = places_[static_cast<size_t>(index)];
  if (!rows_->has(place)) return {};
  return rows_on_gpu_ != nullptr ? rows_on_gpu_->result(place, *rows_) : rows_->result(place);
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
  const auto annotated = [&](const absl::Status& status) {
    return Annotate(status, absl::StrCat("the rows of gradient ", NameOf(place)));
  };
  if (rows_on_gpu_ != nullptr) return annotated(rows_on_gpu_->Scatter(place, *rows_, dense));
  RETURN_IF_ERROR(annotated(CheckOnHost(dense.device)));
  rows_->Scatter(place, dense);
  return absl::OkStatus();
}

// Behind the last part of their bucket, or where that would be, which every rank has at the same place of the plan.
std::vector<internal::GradientStep::RowPart> GradientReducer::State::MakeRowParts(
    const std::vector<fusion::Part>& parts) const {
  std::vector<internal::GradientStep::RowPart> row_parts;
  for (int bucket = 0; bucket < static_cast<int>(plan_.buckets.size()); ++bucket) {
    std::vector<int> tensors;
    std::ranges::copy_if(plan_.buckets[static_cast<size_t>(bucket)].tensors, std::back_inserter(tensors),
                         [this](int place) { return rows_->has(place); });
    if (tensors.empty()) continue;
    const auto own = std::ranges::find(parts.rbegin(), parts.rend(), bucket, &fusion::Part::bucket);
    const auto later = std::ranges::find_if(parts, [bucket](const auto& part) { return part.bucket > bucket; });
    const auto before = own != parts.rend() ? own.base() - parts.begin() : later - parts.begin();
    row_parts.push_back({bucket, static_cast<size_t>(before), std::move(tensors)});
  }
  std::ranges::stable_sort(row_parts, {}, &internal::GradientStep::RowPart::before);
  return row_parts;
}

}  // namespace gyre
