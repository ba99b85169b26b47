// The kernels of compression carried out on the CPU, phase by phase and thread by thread: the code that GPUs run.
// Blocks come in an order from a seed.
#pragma once

#include <functional>
#include <random>
#include <span>
#include <utility>

#include "device/gpu_codecs.h"

namespace gyre::device {

class FakeGpuCodecs final : public GpuCodecs {
 public:
  // Does `work`, now or later, in the order of `stream`.
  using Queue = std::function<absl::Status(Stream stream, std::function<void()> work)>;

  explicit FakeGpuCodecs(Queue queue, unsigned seed = 1) : queue_(std::move(queue)), random_(seed) {}

  absl::Status Quantize(Quantizer kind, const float* gradient, float* kept, int64_t count, uint64_t seed,
                        std::byte* out, Stream stream) override;
  absl::Status DequantizeAdd(Quantizer kind, const std::byte* from, int64_t count, float scale, float* sum,
                             Stream stream) override;
  absl::Status SelectLargest(const kernels::DgcTable& table, DType gradients, const kernels::DgcStep& step,
                             Stream stream) override;

  absl::Status EncodeSparse(std::span<const kernels::SparseEncoding> tensors, kernels::SparseValues values,
                            Stream stream) override;
  absl::Status DecodeAddSparse(std::span<const kernels::SparseDecoding> payloads, Stream stream) override;
  absl::Status TakeRandom(const kernels::RandomChoice& choice, float* values, float* to, Stream stream) override;
  absl::Status AddRandom(const kernels::RandomChoice& choice, const float* from, float scale, float* sum,
                         Stream stream) override;
  absl::Status PutElements(const kernels::ElementList& list, float* to, Stream stream) override;
  absl::Status TakeBack(const kernels::ReturnedList& returned, Stream stream) override;
  absl::Status LowRank(kernels::LowRankPass pass, std::span<const kernels::LowRankMatrix> matrices,
                       Stream stream) override;

 private:
  const Queue queue_;
  std::minstd_rand random_;
};

}  // namespace gyre::device
