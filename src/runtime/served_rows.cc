#include "runtime/served_rows.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/gpu_wait.h"
#include "ps/rows.h"

namespace gyre::internal {

ServedRows::~ServedRows() {
  for (const Pushed& pushed : pushed_) {
    for (const Staged& staged : pushed.staged) pool_->Give(staged.piece);
  }
}

bool ServedRows::Has(std::string_view name) const {
  return std::ranges::any_of(tables_, [&](const ps::Table& table) { return table.name == name; });
}

absl::StatusOr<int> ServedRows::Add(ps::Table table) {
  RETURN_IF_ERROR(ps::Check(table));
  if (Has(table.name))
    return absl::InvalidArgumentError(absl::StrCat("a table named '", table.name, "' is there twice"));
  tables_.push_back(std::move(table));
  pushed_.emplace_back();
  return static_cast<int>(tables_.size()) - 1;
}

absl::Status ServedRows::Check(int table, std::span<const int64_t> ids, const ConstTensorView& values) const {
  if (table < 0 || table >= std::ssize(tables_)) {
    return absl::InvalidArgumentError(absl::StrCat("there is no table ", table, " of ", tables_.size()));
  }
  const ps::Table& own = tables_[static_cast<size_t>(table)];
  if (values.dtype != DType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", own.name, " is of f32; its rows are not ", ToAbsl(DTypeName(values.dtype))));
  }
  if (values.device.gpu == -1 && reinterpret_cast<uintptr_t>(values.data) % alignof(float) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", own.name, ": values on the host are aligned as floats are"));
  }
  if (values.count != std::ssize(ids) * own.columns) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", own.name, ": ", values.count, " values for ", ids.size(), " rows of ", own.columns));
  }
  for (const int64_t id : ids) {
    if (id >= 0 && id < own.rows) continue;
    return absl::InvalidArgumentError(absl::StrCat("table ", own.name, " of ", own.rows, " rows has no row ", id));
  }
  return absl::OkStatus();
}

absl::Status ServedRows::Of(int table, const absl::Status& status) const {
  return status.ok() ? status
                     : Annotate(status, absl::StrCat("rows of table ", tables_[static_cast<size_t>(table)].name));
}

absl::StatusOr<device::PinnedPool*> ServedRows::PoolFor(int table, const Device& device) {
  auto gpu = gpu_.Open(device);
  if (!gpu.ok()) return Of(table, gpu.status());
  if (!pool_) pool_.emplace(*std::move(gpu));
  return &*pool_;
}

absl::Status ServedRows::Push(int table, std::span<const int64_t> ids, const ConstTensorView& gradients) {
  RETURN_IF_ERROR(Check(table, ids, gradients));
  Pushed& pushed = pushed_[static_cast<size_t>(table)];
  const auto* const values = static_cast<const float*>(gradients.data);
  const auto count = static_cast<size_t>(gradients.count);
  if (gradients.device.gpu != -1) {
    ASSIGN_OR_RETURN(device::PinnedPool* const pool, PoolFor(table, gradients.device));
    if (count == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(device::PinnedPool::Piece* const piece, pool->Take(gradients.bytes()));
    RETURN_IF_ERROR(
        Of(table, pool->Copy(piece, piece->memory.get(), values, gradients.bytes(), gradients.device.stream)));
    const size_t first = pushed.gradients.size();
    pushed.staged.push_back({.first = first, .count = count, .piece = piece});
    pushed.gradients.resize(first + count);
  } else {
    pushed.gradients.insert(pushed.gradients.end(), values, values + count);
  }
  pushed.ids.insert(pushed.ids.end(), ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status ServedRows::Fill(int table, std::span<const int64_t> ids, const TensorView& values, Pull pull) {
  RETURN_IF_ERROR(Check(table, ids, values));
  if (values.device.gpu == -1) {
    if (ids.empty()) return absl::OkStatus();
    return pull({static_cast<float*>(values.data), static_cast<size_t>(values.count)});
  }
  ASSIGN_OR_RETURN(device::PinnedPool* const pool, PoolFor(table, values.device));
  if (ids.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(device::PinnedPool::Piece* const piece, pool->Take(values.bytes()));
  auto* const here = reinterpret_cast<float*>(piece->memory.get());
  absl::Status pulled = pull({here, static_cast<size_t>(values.count)});
  if (!pulled.ok()) {
    pool->Give(piece);
    return pulled;
  }
  RETURN_IF_ERROR(Of(table, pool->Copy(piece, values.data, here, values.bytes(), values.device.stream)));
  pool->Give(piece);
  return absl::OkStatus();
}

// --- To the servers ---

absl::Status ServedRows::Await(size_t table, const Staged& staged, TimePoint deadline) const {
  device::Gpu& gpu = *gpu_.gpu();
  ASSIGN_OR_RETURN(const bool done, device::AwaitEvent(gpu, staged.piece->copied, deadline));
  if (done) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("GPU ", gpu.ordinal(), " of rank ", rank_,
                                                  " had not copied rows of table ", tables_[table].name,
                                                  " to the host in time"));
}

absl::Status ServedRows::Arrive(TimePoint deadline) {
  absl::Status arrived;
  for (size_t table = 0; table < pushed_.size(); ++table) {
    for (const Staged& staged : std::exchange(pushed_[table].staged, {})) {
      if (arrived.ok()) arrived = Await(table, staged, deadline);
      if (arrived.ok()) {
        std::memcpy(pushed_[table].gradients.data() + staged.first, staged.piece->memory.get(),
                    staged.count * sizeof(float));
      }
      pool_->Give(staged.piece);
    }
  }
  return arrived;
}

absl::StatusOr<std::vector<ps::Floats>> ServedRows::Pack(int servers, TimePoint deadline) {
  RETURN_IF_ERROR(Arrive(deadline));
  std::vector<ps::Floats> rows;
  for (size_t table = 0; table < pushed_.size(); ++table) {
    ASSIGN_OR_RETURN(auto packed, ps::PackRows(tables_[table], servers, pushed_[table].ids, pushed_[table].gradients));
    std::ranges::move(packed, std::back_inserter(rows));
  }
  return rows;
}

absl::StatusOr<std::vector<ps::Floats>> ServedRows::Take(int servers, TimePoint deadline) {
  auto packed = Pack(servers, deadline);
  for (Pushed& pushed : pushed_) {
    pushed.ids.clear();
    pushed.gradients.clear();
  }
  return packed;
}

}  // namespace gyre::internal
