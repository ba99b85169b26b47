#include "runtime/row_exchange.h"

#include <array>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "fusion/arithmetic.h"

namespace gyre::internal {

void RowExchange::Add(int place, const fusion::RowShape& shape) {
  at_[static_cast<size_t>(place)] = static_cast<int>(gradients_.size());
  const fusion::RowSum none(shape);
  gradients_.push_back({.place = place, .own = none, .spare = none, .arrived = none, .result = none});
}

absl::Status RowExchange::Check(int place, const RowsView& given) const {
  const std::string& name = tensors_[static_cast<size_t>(place)].name;
  if (!has(place)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient \"", absl::CHexEscape(name), "\" was not registered as rows"));
  }
  return fusion::CheckGiven(name, at(place).own.shape(), given);
}

void RowExchange::Give(int place, const RowsView& given) {
  Gradient& gradient = gradients_[static_cast<size_t>(at_[static_cast<size_t>(place)])];
  RowsView converted = given;
  std::vector<std::byte> memory;
  const DType dtype = gradient.own.shape().dtype;
  if (given.values.dtype != dtype) {
    memory.resize(static_cast<size_t>(given.values.count * DTypeSize(dtype)));
    const TensorView values(memory.data(), given.values.count, dtype);
    fusion::Convert(given.values, values);
    converted.values = values;
  }
  const std::array<RowsView, 2> both = {gradient.own.view(), converted};
  gradient.spare.Assign(both, 1, 1);
  std::swap(gradient.own, gradient.spare);
}

void RowExchange::Begin(const std::vector<int>& places) {
  part_.clear();
  for (const int place : places) part_.push_back(static_cast<size_t>(at_[static_cast<size_t>(place)]));
  round_ = 0;
}

absl::StatusOr<std::optional<Call>> RowExchange::Next() {
  switch (round_++) {
    case 0: return GatherCounts();
    case 1: return GatherRows();
    default: RETURN_IF_ERROR(Merge()); return std::nullopt;
  }
}

Call RowExchange::GatherCounts() {
  own_counts_.clear();
  for (size_t i = 0; i < part_.size(); ++i) own_counts_.push_back(std::ssize(part(i).own.view().rows));
  numbers_of_.assign(static_cast<size_t>(settings_.ranks), std::ssize(own_counts_));
  counts_.resize(own_counts_.size() * numbers_of_.size());
  ++next_step_.calls;
  return {.kind = CallKind::kAllGather, .in = own_counts_, .out = counts_, .counts = numbers_of_};
}

// A rank sends every row once.
absl::Status RowExchange::CheckCounts() const {
  for (size_t i = 0; i < counts_.size(); ++i) {
    const Gradient& gradient = part(i % part_.size());
    if (counts_[i] >= 0 && counts_[i] <= gradient.own.shape().rows) continue;
    return absl::DataLossError(absl::StrCat("rank ", i / part_.size(), " of ", settings_.ranks, " has ", counts_[i],
                                            " rows of ", gradient.own.shape().rows));
  }
  return absl::OkStatus();
}

// Fills outgoing_.
void RowExchange::Pack() {
  int64_t total = 0;
  for (size_t i = 0; i < part_.size(); ++i) total += part(i).own.packed_bytes();
  outgoing_.resize(static_cast<size_t>(total));
  std::span<std::byte> rest(outgoing_);
  for (size_t i = 0; i < part_.size(); ++i) {
    fusion::RowSum& own = part(i).own;
    const auto bytes = static_cast<size_t>(own.packed_bytes());
    own.Pack(rest.first(bytes));
    rest = rest.subspan(bytes);
    own.Clear();
  }
}

absl::StatusOr<Call> RowExchange::GatherRows() {
  RETURN_IF_ERROR(CheckCounts());
  Pack();
  bytes_of_.assign(static_cast<size_t>(settings_.ranks), 0);
  for (size_t i = 0; i < counts_.size(); ++i) {
    bytes_of_[i / part_.size()] += fusion::RowSum::PackedBytes(part(i % part_.size()).own.shape(), counts_[i]);
  }
  incoming_.resize(static_cast<size_t>(std::accumulate(bytes_of_.begin(), bytes_of_.end(), int64_t{0})));
  ++next_step_.calls;
  next_step_.sent_bytes += std::ssize(outgoing_);
  return Call{.kind = CallKind::kAllGather,
              .in = {outgoing_.data(), std::ssize(outgoing_), DType::kU8},
              .out = {incoming_.data(), std::ssize(incoming_), DType::kU8},
              .counts = bytes_of_};
}

// From incoming_: rank by rank, gradient by gradient.
absl::Status RowExchange::Merge() {
  const size_t ranks = bytes_of_.size();
  std::vector<std::vector<RowsView>> sources(part_.size(), std::vector<RowsView>(ranks));
  std::span<const std::byte> rest(incoming_);
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < part_.size(); ++i) {
      const int64_t rows = counts_[rank * part_.size() + i];
      const fusion::RowShape& shape = part(i).own.shape();
      const auto bytes = static_cast<size_t>(fusion::RowSum::PackedBytes(shape, rows));
      if (const absl::Status unpacked = Unpack(shape, rows, rest.first(bytes), sources[i][rank]); !unpacked.ok()) {
        const std::string& name = tensors_[static_cast<size_t>(part(i).place)].name;
        return Annotate(unpacked, absl::StrCat("row gradient \"", absl::CHexEscape(name), "\" of rank ", rank));
      }
      rest = rest.subspan(bytes);
    }
  }
  for (size_t i = 0; i < part_.size(); ++i) {
    part(i).arrived.Assign(sources[i], settings_.scale_source, settings_.scale_result);
  }
  return absl::OkStatus();
}

void RowExchange::FinishStep() {
  for (Gradient& gradient : gradients_) std::swap(gradient.result, gradient.arrived);
  step_ = std::exchange(next_step_, {});
}

double RowExchange::SumOfSquares() const {
  double sum = 0;
  for (const Gradient& gradient : gradients_) sum += fusion::SumOfSquares(gradient.result.view().values);
  return sum;
}

bool RowExchange::AllFinite() const {
  for (const Gradient& gradient : gradients_) {
    if (!fusion::AllFinite(gradient.result.view().values)) return false;
  }
  return true;
}

void RowExchange::Scale(double scale) {
  for (Gradient& gradient : gradients_) fusion::Scale(gradient.result.values(), scale);
}

}  // namespace gyre::internal
