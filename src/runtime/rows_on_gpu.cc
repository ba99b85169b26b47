#include "runtime/rows_on_gpu.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/call.h"
#include "device/gpu_wait.h"
#include "device/pack_table.h"

namespace gyre::internal {

namespace {

// Rows whose numbers follow each other are one segment.
std::vector<device::Segment> SegmentsOf(const RowsView& rows, const fusion::RowShape& shape, void* values) {
  std::vector<device::Segment> segments;
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    const int64_t first = rows.rows[i] * shape.width;
    if (!segments.empty() && segments.back().first + segments.back().count == first) {
      segments.back().count += shape.width;
      continue;
    }
    std::byte* const data = static_cast<std::byte*>(values) + static_cast<int64_t>(i) * shape.row_bytes();
    segments.push_back({.data = data, .count = shape.width, .first = first, .dtype = shape.dtype});
  }
  return segments;
}

}  // namespace

// What the program has queued may read results yet: freed once that has been done, or not at all.
RowsOnGpu::~RowsOnGpu() {
  const auto deadline = std::chrono::steady_clock::now() + device::kLongestRest;
  bool rests = true;
  for (const auto& gradient : by_place_) {
    if (gradient == nullptr) continue;
    for (const Pending& pending : gradient->pending) {
      if (pending.values != nullptr) pool_.Give(pending.values);
    }
    const auto done = device::AwaitEvent(*gpu_, gradient->queued, deadline);
    rests = rests && done.ok() && *done;
    gpu_->DestroyEvent(gradient->queued);
  }
  if (!rests) return;
  for (const auto& gradient : by_place_) {
    if (gradient != nullptr && gradient->result != nullptr) gpu_->Free(gradient->result);
  }
  for (void* memory : outgrown_) gpu_->Free(memory);
}

absl::Status RowsOnGpu::Add(int place, const fusion::RowShape& shape, void* stream) {
  auto gradient = std::make_unique<Gradient>();
  gradient->shape = shape;
  gradient->stream = stream;
  ASSIGN_OR_RETURN(gradient->queued, gpu_->CreateEvent());
  by_place_[static_cast<size_t>(place)] = std::move(gradient);
  return absl::OkStatus();
}

// --- To the host ---

absl::Status RowsOnGpu::CheckHere(const Device& device) const {
  if (IsPerThread(device)) return absl::InvalidArgumentError(absl::StrCat("they are on ", kPerThreadText));
  if (device.gpu == gpu_->ordinal()) return absl::OkStatus();
  const std::string where = device.on_gpu() ? absl::StrCat("of GPU ", device.gpu) : std::string("of the host");
  return absl::InvalidArgumentError(
      absl::StrCat("they were registered on GPU ", gpu_->ordinal(), "; given was memory ", where));
}

absl::Status RowsOnGpu::Check(const RowsView& given) const {
  return given.values.count == 0 ? absl::OkStatus() : CheckHere(given.values.device);
}

absl::StatusOr<RowsOnGpu::Pending> RowsOnGpu::Copy(const RowsView& given) {
  const ConstTensorView& values = given.values;
  Pending pending{.rows = {given.rows.begin(), given.rows.end()}, .count = values.count, .dtype = values.dtype};
  if (values.count == 0) return pending;
  ASSIGN_OR_RETURN(pending.values, pool_.Take(values.bytes()));
  void* const memory = pending.values->memory.get();
  RETURN_IF_ERROR(pool_.Copy(pending.values, memory, values.data, values.bytes(), values.device.stream));
  return pending;
}

void RowsOnGpu::Give(int place, const RowsView& given) {
  auto pending = Copy(given);
  std::lock_guard lock(mutex_);
  if (pending.ok()) {
    by_place_[static_cast<size_t>(place)]->pending.push_back(*std::move(pending));
  } else if (failure_.ok()) {
    failure_ = pending.status();
  }
}

absl::StatusOr<bool> RowsOnGpu::AreThere(const std::vector<int>& places) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(failure_);
  for (const int place : places) {
    for (const Pending& pending : at(place).pending) {
      if (pending.values == nullptr) continue;
      ASSIGN_OR_RETURN(const bool there, gpu_->Done(pending.values->copied));
      if (!there) return false;
    }
  }
  return true;
}

std::vector<RowsOnGpu::Pending> RowsOnGpu::TakePending(int place) {
  std::lock_guard lock(mutex_);
  return std::exchange(by_place_[static_cast<size_t>(place)]->pending, {});
}

absl::StatusOr<bool> RowsOnGpu::Arrive(const std::vector<int>& places, RowExchange& exchange) {
  ASSIGN_OR_RETURN(const bool there, AreThere(places));
  if (!there) return false;
  for (const int place : places) {
    for (const Pending& pending : TakePending(place)) {
      const void* const values = pending.values != nullptr ? pending.values->memory.get() : nullptr;
      exchange.Give(place, {pending.rows, {values, pending.count, pending.dtype}});
      if (pending.values != nullptr) pool_.Give(pending.values);
    }
  }
  return true;
}

// --- And back ---

absl::Status RowsOnGpu::MakeRoom(Gradient& gradient, int64_t bytes) {
  if (bytes <= gradient.result_bytes) return absl::OkStatus();
  const int64_t larger = std::max(bytes, 2 * gradient.result_bytes);
  ASSIGN_OR_RETURN(void* const memory, gpu_->Allocate(larger));
  if (gradient.result != nullptr) outgrown_.push_back(gradient.result);
  gradient.result = memory;
  gradient.result_bytes = larger;
  return absl::OkStatus();
}

absl::Status RowsOnGpu::BringOne(Gradient& gradient, const RowsView& rows) {
  const int64_t bytes = rows.values.bytes();
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(MakeRoom(gradient, bytes));
  ASSIGN_OR_RETURN(device::PinnedPool::Piece* const piece, pool_.Take(bytes));
  std::memcpy(piece->memory.get(), rows.values.data, static_cast<size_t>(bytes));
  RETURN_IF_ERROR(pool_.Copy(piece, gradient.result, piece->memory.get(), bytes, gradient.stream));
  pool_.Give(piece);
  return gpu_->Record(gradient.queued, gradient.stream);
}

absl::Status RowsOnGpu::Bring(const RowExchange& exchange) {
  for (size_t place = 0; place < by_place_.size(); ++place) {
    if (by_place_[place] == nullptr) continue;
    RETURN_IF_ERROR(BringOne(*by_place_[place], exchange.result(static_cast<int>(place))));
  }
  return absl::OkStatus();
}

RowsView RowsOnGpu::result(int place, const RowExchange& exchange) const {
  RowsView rows = exchange.result(place);
  const Gradient& gradient = at(place);
  rows.values.data = gradient.result;
  rows.values.device = {.gpu = gpu_->ordinal(), .stream = gradient.stream};
  return rows;
}

// On the results' stream, where they are overwritten: the other one's waits for it, and it for that.
absl::Status RowsOnGpu::Scatter(int place, const RowExchange& exchange, const TensorView& dense) const {
  if (dense.count == 0) return absl::OkStatus();
  RETURN_IF_ERROR(CheckHere(dense.device));
  const Gradient& gradient = at(place);
  const std::vector<device::Segment> segments = SegmentsOf(exchange.result(place), gradient.shape, gradient.result);
  ASSIGN_OR_RETURN(device::PackTable table, device::MakePackTable(segments, dense.dtype));
  ASSIGN_OR_RETURN(const auto uploaded, gpu_->Upload(std::move(table), gradient.stream));
  RETURN_IF_ERROR(gpu_->Record(gradient.queued, dense.device.stream));
  RETURN_IF_ERROR(gpu_->Wait(gradient.stream, gradient.queued));
  RETURN_IF_ERROR(gpu_->Zero(dense.data, dense.bytes(), gradient.stream));
  RETURN_IF_ERROR(gpu_->Pack(*uploaded, dense.data, 1, gradient.stream));
  RETURN_IF_ERROR(gpu_->Record(gradient.queued, gradient.stream));
  return gpu_->Wait(dense.device.stream, gradient.queued);
}

}  // namespace gyre::internal
