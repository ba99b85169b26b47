#include "runtime/row_exchange.h"

#include <array>
#include <numeric>
#include <span>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "fusion/arithmetic.h"

namespace gyre::internal {

void RowExchange::Add(int place, const fusion::RowShape& shape) {
  at_[static_cast<size_t>(place)] = static_cast<int>(gradients_.size());
  gradients_.push_back({place, fusion::RowSum(shape), fusion::RowSum(shape), fusion::RowSum(shape)});
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

absl::Status RowExchange::Exchange(Communicator& communicator, double prescale, double postscale,
                                   const CallOptions& options) {
  if (gradients_.empty()) return absl::OkStatus();
  std::vector<int64_t> own;
  for (const Gradient& gradient : gradients_) own.push_back(std::ssize(gradient.own.view().rows));
  counts_.resize(own.size() * static_cast<size_t>(communicator.size()));
  RETURN_IF_ERROR(communicator.AllGather(own, counts_, options));
  RETURN_IF_ERROR(CheckCounts(communicator.size()));
  const std::vector<int64_t> bytes_of = Pack(communicator.size());
  incoming_.resize(static_cast<size_t>(std::accumulate(bytes_of.begin(), bytes_of.end(), int64_t{0})));
  RETURN_IF_ERROR(communicator.AllGatherV({outgoing_.data(), std::ssize(outgoing_), DType::kU8}, bytes_of,
                                          {incoming_.data(), std::ssize(incoming_), DType::kU8}, options));
  return Merge(bytes_of, prescale, postscale);
}

// A rank sends every row once.
absl::Status RowExchange::CheckCounts(int ranks) const {
  for (size_t i = 0; i < counts_.size(); ++i) {
    const Gradient& gradient = gradients_[i % gradients_.size()];
    if (counts_[i] >= 0 && counts_[i] <= gradient.own.shape().rows) continue;
    return absl::DataLossError(absl::StrCat("rank ", i / gradients_.size(), " of ", ranks, " has ", counts_[i],
                                            " rows of ", gradient.own.shape().rows));
  }
  return absl::OkStatus();
}

// Fills outgoing_. Returns how many bytes each rank sends.
std::vector<int64_t> RowExchange::Pack(int ranks) {
  std::vector<int64_t> bytes_of(static_cast<size_t>(ranks));
  for (size_t i = 0; i < counts_.size(); ++i) {
    const fusion::RowShape& shape = gradients_[i % gradients_.size()].own.shape();
    bytes_of[i / gradients_.size()] += fusion::RowSum::PackedBytes(shape, counts_[i]);
  }
  int64_t total = 0;
  for (const Gradient& gradient : gradients_) total += gradient.own.packed_bytes();
  outgoing_.resize(static_cast<size_t>(total));
  std::span<std::byte> rest(outgoing_);
  for (Gradient& gradient : gradients_) {
    const auto bytes = static_cast<size_t>(gradient.own.packed_bytes());
    gradient.own.Pack(rest.first(bytes));
    rest = rest.subspan(bytes);
    gradient.own.Clear();
  }
  return bytes_of;
}

// From incoming_: rank by rank, gradient by gradient.
absl::Status RowExchange::Merge(const std::vector<int64_t>& bytes_of, double prescale, double postscale) {
  const size_t ranks = bytes_of.size();
  std::vector<std::vector<RowsView>> sources(gradients_.size(), std::vector<RowsView>(ranks));
  std::span<const std::byte> rest(incoming_);
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t g = 0; g < gradients_.size(); ++g) {
      const Gradient& gradient = gradients_[g];
      const int64_t rows = counts_[rank * gradients_.size() + g];
      const auto bytes = static_cast<size_t>(fusion::RowSum::PackedBytes(gradient.own.shape(), rows));
      const absl::Status unpacked = Unpack(gradient.own.shape(), rows, rest.first(bytes), sources[g][rank]);
      if (!unpacked.ok()) {
        const std::string& name = tensors_[static_cast<size_t>(gradient.place)].name;
        return Annotate(unpacked, absl::StrCat("row gradient \"", absl::CHexEscape(name), "\" of rank ", rank));
      }
      rest = rest.subspan(bytes);
    }
  }
  for (size_t g = 0; g < gradients_.size(); ++g) gradients_[g].result.Assign(sources[g], prescale, postscale);
  return absl::OkStatus();
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
