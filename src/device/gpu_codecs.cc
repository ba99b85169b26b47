#include "device/gpu_codecs.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::device {

namespace {

absl::Status CheckPayload(const std::byte* payload) {
  if (reinterpret_cast<uintptr_t>(payload) % 4 == 0) return absl::OkStatus();
  return absl::InvalidArgumentError("a payload on a GPU must lie on a multiple of 4 bytes");
}

}  // namespace

absl::Status CheckQuantization(const float* gradient, const float* kept, int64_t count, const std::byte* out) {
  if (count > 0 && gradient == nullptr && kept == nullptr) {
    return absl::InvalidArgumentError("neither a gradient to be quantised nor what was kept");
  }
  return CheckPayload(out);
}

absl::Status CheckDequantization(const std::byte* from) {
  return CheckPayload(from);
}

int64_t MostSparseBytes(int64_t count, int64_t selected, kernels::SparseValues values) {
  const int64_t chunks = (count + kernels::kChunkElements - 1) / kernels::kChunkElements;
  const int64_t blocks = (kernels::kChunkElements + kernels::kPositionBlock - 1) / kernels::kPositionBlock;
  const int64_t entry = values == kernels::SparseValues::kF32 ? 6 : 4;
  return kernels::kSparseHeader + chunks * (kernels::kSparseHeader + 2 * blocks) + entry * selected;
}

absl::Status CheckSparse(int64_t count) {
  if (count >= 0 && count <= int64_t{UINT32_MAX}) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a sparse payload of a tensor of ", count, " elements"));
}

absl::Status CheckRandom(const kernels::RandomChoice& choice) {
  if (choice.chosen >= 0 && choice.chosen <= choice.count && choice.count <= int64_t{UINT32_MAX}) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a random choice of ", choice.chosen, " of ", choice.count, " elements"));
}

absl::Status CheckSelection(DType gradients, const kernels::DgcStep& step) {
  if (!Convertible(gradients)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradients of ", ToAbsl(DTypeName(gradients)), " cannot be compressed on a GPU"));
  }
  if (!std::isfinite(step.factor) || !std::isfinite(step.scale)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a factor of ", step.factor, " and a scale of ", step.scale, ": both must be finite"));
  }
  if (!step.select || (step.sparsity >= 0 && step.sparsity < 1)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a sparsity of ", step.sparsity));
}

absl::Status CheckLowRank(std::span<const kernels::LowRankMatrix> matrices) {
  for (const kernels::LowRankMatrix& m : matrices) {
    if (m.rows >= 1 && m.columns >= 1 && m.rank >= 1 && m.rank <= kernels::kMostRank) continue;
    return absl::InvalidArgumentError(absl::StrCat("a matrix of ", m.rows, " x ", m.columns, " of rank ", m.rank));
  }
  return absl::OkStatus();
}

}  // namespace gyre::device
