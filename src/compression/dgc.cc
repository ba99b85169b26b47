#include "compression/dgc.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compression/payload.h"
#include "compression/quantize.h"
#include "compression/state.h"

namespace gyre::compression {

namespace {

// The number of elements, or -1 if that is negative or too many.
int64_t CountOf(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t length : shape) {
    if (length < 0 || (length > 0 && count > int64_t{UINT32_MAX} / length)) return -1;
    count *= length;
  }
  return count;
}

bool IsDense(const Dgc& options, const DgcModel::Tensor& tensor, int64_t count) {
  if (static_cast<int>(tensor.shape.size()) < options.min_dimensions || count < options.min_elements) return true;
  return std::ranges::any_of(options.dense_names,
                             [&](const std::string& part) { return tensor.name.find(part) != std::string::npos; });
}

}  // namespace

double SparsityAt(const Dgc& options, int64_t step) {
  if (options.warmup_steps == 0) return options.sparsity;
  const auto stage = static_cast<size_t>(step / options.warmup_steps);
  return stage < options.warmup.size() ? options.warmup[stage] : options.sparsity;
}

float ClipScale(const Dgc& options, double norm, int ranks) {
  if (options.clip == 0) return 1;
  const double most = options.clip / std::sqrt(static_cast<double>(ranks));
  return norm > most ? static_cast<float>(most / norm) : 1;
}

DgcTensor::DgcTensor(const Dgc& options, int64_t count, double link_bytes_per_second)
    : options_(options),
      count_(count),
      sparse_{options.values, link_bytes_per_second},
      sparsity_(options.sparsity),
      u_(count),
      v_(count) {}

void DgcTensor::Set(double sparsity, float scale) {
  sparsity_ = sparsity;
  scale_ = scale;
}

absl::Status DgcTensor::Encode(std::span<const float> gradient, int64_t /*step*/, std::vector<std::byte>& out) {
  return EncodeTo(gradient, nullptr, out);
}

absl::Status DgcTensor::EncodeAndClear(std::span<float> gradient, int64_t /*step*/, std::vector<std::byte>& out) {
  return EncodeTo(gradient, gradient.data(), out);
}

// `cleared`: the gradient's memory, or null.
absl::Status DgcTensor::EncodeTo(std::span<const float> gradient, float* cleared, std::vector<std::byte>& out) {
  if (static_cast<int64_t>(gradient.size()) != count_) {
    return absl::InvalidArgumentError(absl::StrCat("a gradient of ", gradient.size(), " elements, not ", count_));
  }
  if (options_.non_finite == Dgc::NonFinite::kRefuse) {
    const int64_t bad = SumOfSquares(gradient).non_finite;
    if (bad > 0) {
      return absl::FailedPreconditionError(absl::StrCat(bad, " elements of the gradient are NaN or infinite"));
    }
  }
  const Accumulation arrays{.momentum = u_.data(),
                            .velocity = v_.data(),
                            .gradient = gradient.data(),
                            .cleared = cleared,
                            .factor = options_.momentum,
                            .scale = scale_,
                            .nesterov = options_.nesterov,
                            .masked = options_.factor_masking};
  if (sparsity_ == 0 || count_ == 0) {
    EncodeAll(arrays, out);
    if (cleared != nullptr) std::fill_n(cleared, count_, 0.0f);
  } else {
    EncodeLargest(arrays, out);
  }
  return absl::OkStatus();
}

// Momentum that has all been sent is as fresh as that of a dense optimizer: u stays.
void DgcTensor::EncodeAll(const Accumulation& arrays, std::vector<std::byte>& out) {
  if (count_ > 0) non_finite_ += Accumulate(arrays, 0, count_);
  out.resize(kPayloadHeaderBytes + static_cast<size_t>(QuantizedBytes(DenseKindOf(options_.values), count_)));
  StoreHeader(out.data(), {DenseKindOf(options_.values), 0, count_});
  Quantize(DenseKindOf(options_.values), nullptr, v_.data(), count_, 0, out.data() + kPayloadHeaderBytes);
}

void DgcTensor::EncodeLargest(const Accumulation& arrays, std::vector<std::byte>& out) {
  const Selector::Result result = selector_.SelectLargest(arrays, count_, KeptCount(sparsity_, count_));
  non_finite_ += result.non_finite;
  rescans_ += result.rescanned ? 1 : 0;
  const auto indices = selector_.indices();
  const auto values = selector_.values();
  EncodeSparse(indices, values, count_, sparse_, out);
  if (options_.values == ValueType::kF32) return;
  for (size_t i = 0; i < indices.size(); ++i) v_.data()[indices[i]] = values[i];  // the rounding errors
}

DgcModel::DgcModel(const Dgc& options, int ranks, std::vector<Entry> entries)
    : options_(options), ranks_(ranks), entries_(std::move(entries)) {
  BeginStep(0, 0);
}

absl::StatusOr<DgcModel> DgcModel::Create(const Dgc& options, std::span<const Tensor> tensors, int ranks,
                                          double link_bytes_per_second) {
  RETURN_IF_ERROR(Validate(options));
  if (ranks < 1) return absl::InvalidArgumentError(absl::StrCat("dgc: ", ranks, " ranks"));
  std::vector<Entry> entries;
  for (const Tensor& tensor : tensors) {
    const int64_t count = CountOf(tensor.shape);
    if (count < 0) return absl::InvalidArgumentError(absl::StrCat("dgc: the shape of '", tensor.name, "'"));
    entries.push_back({tensor.name, IsDense(options, tensor, count),
                       std::make_unique<DgcTensor>(options, count, link_bytes_per_second)});
  }
  return DgcModel(options, ranks, std::move(entries));
}

void DgcModel::BeginStep(int64_t step, double norm) {
  step_ = step;
  const double sparsity = SparsityAt(options_, step);
  const float scale = ClipScale(options_, norm, ranks_);
  for (Entry& entry : entries_) entry.codec->Set(entry.dense ? 0 : sparsity, scale);
}

absl::Status DgcModel::Encode(int tensor, std::span<const float> gradient, std::vector<std::byte>& out) {
  Entry& entry = entries_[static_cast<size_t>(tensor)];
  return Annotate(entry.codec->Encode(gradient, step_, out), entry.name);
}

std::vector<Codec*> DgcModel::Codecs() {
  std::vector<Codec*> codecs;
  for (Entry& entry : entries_) codecs.push_back(entry.codec.get());
  return codecs;
}

std::vector<std::byte> DgcModel::Save() {
  return SaveState(Codecs());
}

absl::Status DgcModel::Restore(std::span<const std::span<const std::byte>> saved) {
  return RestoreState(saved, Codecs());
}

}  // namespace gyre::compression
