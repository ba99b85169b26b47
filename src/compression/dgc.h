// Deep gradient compression: Lin, Han, Mao, Wang, Dally, "Deep Gradient Compression", ICLR 2018. Pure: what is sent is
// the caller's to add up over the ranks. The optimizer then does w -= learning_rate * sum, without momentum of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compression/codec.h"
#include "compression/large_buffer.h"
#include "compression/selector.h"
#include "gyre/compression.h"

namespace gyre::compression {

// The sparsity of step `step` (0 the first): options.warmup's, then options.sparsity (section 3.3, warm-up training).
double SparsityAt(const Dgc& options, int64_t step);

// By how much a rank scales its gradient of norm `norm` before it accumulates it: to options.clip / sqrt(ranks) if it
// is longer (section 3.2, local gradient clipping).
float ClipScale(const Dgc& options, double norm, int ranks);

// One tensor's accumulators and threshold.
class DgcTensor final : public Codec {
 public:
  // REQUIRES: valid options, 0 <= count < 2^32
  DgcTensor(const Dgc& options, int64_t count, double link_bytes_per_second);

  // For the steps to come; at first the options' sparsity and 1. Sparsity 0: dense, and nothing is masked.
  void Set(double sparsity, float scale);

  // Momentum correction (section 3.1), then the largest of v are sent and, with them, u is masked (section 3.3).
  // kFailedPrecondition, with nothing changed, if the gradient has what is not finite and the options say kRefuse.
  absl::Status Encode(std::span<const float> gradient, int64_t step, std::vector<std::byte>& out) override;

  absl::Status EncodeAndClear(std::span<float> gradient, int64_t step, std::vector<std::byte>& out) override;

  std::vector<std::span<float>> state() override { return {u_.span(), v_.span()}; }  // momentum, residual

  // What u was at the positions that the last Encode has sent, in their order. REQUIRES: its sparsity was above 0.
  std::span<const float> momenta() const { return selector_.momenta(); }

  int64_t non_finite() const { return non_finite_; }  // elements of gradients that were dropped
  int64_t rescans() const { return rescans_; }        // steps that took more than one pass

 private:
  absl::Status EncodeTo(std::span<const float> gradient, float* cleared, std::vector<std::byte>& out);
  void EncodeAll(const Accumulation& arrays, std::vector<std::byte>& out);
  void EncodeLargest(const Accumulation& arrays, std::vector<std::byte>& out);

  const Dgc options_;
  const int64_t count_;
  const SparseOptions sparse_;
  double sparsity_;
  float scale_ = 1;
  LargeBuffer u_, v_;
  Selector selector_;
  int64_t non_finite_ = 0, rescans_ = 0;
};

// All tensors of a model: which of them are sent dense, warm-up, clipping by the norm of the whole.
// Threads: Encode of different tensors may run at once; everything else needs the object to itself.
class DgcModel {
 public:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
  };

  // `ranks`: how many sparsify, for the clipping. kInvalidArgument names the option, or the tensor with a bad shape.
  static absl::StatusOr<DgcModel> Create(const Dgc& options, std::span<const Tensor> tensors, int ranks,
                                         double link_bytes_per_second);

  // Begins step `step` (0 the first). `norm`: of this rank's gradients, all tensors together (the root of the sum of
  // SumOfSquares); not looked at where options.clip is 0.
  void BeginStep(int64_t step, double norm);

  // The payload of one tensor's gradient: DgcTensor::Encode's errors, with its name.
  absl::Status Encode(int tensor, std::span<const float> gradient, std::vector<std::byte>& out);

  int tensors() const { return static_cast<int>(entries_.size()); }
  bool dense(int tensor) const { return entries_[static_cast<size_t>(tensor)].dense; }  // excluded by the options
  const DgcTensor& tensor(int tensor) const { return *entries_[static_cast<size_t>(tensor)].codec; }

  // The accumulators of all tensors as bytes, and back: see state.h.
  std::vector<std::byte> Save();
  absl::Status Restore(std::span<const std::span<const std::byte>> saved);

 private:
  struct Entry {
    std::string name;
    bool dense;
    std::unique_ptr<DgcTensor> codec;
  };

  DgcModel(const Dgc& options, int ranks, std::vector<Entry> entries);
  std::vector<Codec*> Codecs();

  Dgc options_;
  int ranks_;
  int64_t step_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace gyre::compression
