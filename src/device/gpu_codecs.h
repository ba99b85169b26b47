// Kernels of compression on one GPU: the codecs of src/compression, with the same bits, but for the payloads of NaNs
// that additions give, which are the processor's choice. What is compressed, and how it is exchanged, is for those
// above; all memory is the caller's and on the GPU.
//
// As of device/gpu.h: work is queued on streams, nothing waits for the GPU, Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "device/gpu.h"
#include "device/kernels/dgc.h"
#include "device/kernels/low_rank.h"
#include "device/kernels/random.h"
#include "device/kernels/scatter.h"
#include "device/kernels/sparse_decode.h"
#include "gyre/dtype.h"

namespace gyre::device {

// Dense payloads, by their numbers on the wire (docs/wire_format.md, "Compressed gradients").
enum class Quantizer : uint8_t {
  kF32 = 0,
  kF16 = 1,
  kBF16 = 2,
  kFp8E4M3 = 3,
  kFp8E5M2 = 4,
  kInt8 = 5,
  kInt4 = 6,
  kSign = 7,
  kTernary = 8,
};
constexpr int kQuantizers = 9;

class GpuCodecs {
 public:
  using Stream = Gpu::Stream;

  virtual ~GpuCodecs() = default;

  // Writes what compression::Quantize writes of gradient + kept, float32 both, to `out`, and leaves in `kept` what its
  // receivers do not get. One of the two may be null: it counts as nothing. Quickest where all three lie on multiples
  // of 16 bytes (a payload's header has 12). kInvalidArgument: both are, or `out` does not lie on a multiple of 4
  // bytes.
  virtual absl::Status Quantize(Quantizer kind, const float* gradient, float* kept, int64_t count, uint64_t seed,
                                std::byte* out, Stream stream) = 0;

  // sum += scale * what Quantize wrote. kInvalidArgument: `from` does not lie on a multiple of 4 bytes.
  virtual absl::Status DequantizeAdd(Quantizer kind, const std::byte* from, int64_t count, float scale, float* sum,
                                     Stream stream) = 0;

  // A step of deep gradient compression of all of a table's tensors, whose gradients are of `gradients`: kF32, kF16 or
  // kBF16. What it does: device/kernels/dgc.h; who makes tables: device/gpu_dgc.h. kInvalidArgument: gradients of
  // another type, a sparsity that is not of [0, 1) where the step chooses, a factor or scale that is not finite.
  virtual absl::Status SelectLargest(const kernels::DgcTable& table, DType gradients, const kernels::DgcStep& step,
                                     Stream stream) = 0;

  // Payloads of several tensors' chosen elements, which compression::SparseDecoder reads: MostSparseBytes or fewer
  // each, which must be less than 4 GiB. kInvalidArgument: a tensor of 2^32 elements or more.
  virtual absl::Status EncodeSparse(std::span<const kernels::SparseEncoding> tensors, kernels::SparseValues values,
                                    Stream stream) = 0;

  // Adds payloads to as many different tensors: what several ranks sent of one comes with a call each. Whoever asks for
  // a payload's fault finds it where it said, once the work has been done.
  virtual absl::Status DecodeAddSparse(std::span<const kernels::SparseDecoding> payloads, Stream stream) = 0;

  // The values of a random payload (device/kernels/random.h): moves the chosen of `values`, which become 0, to `to`,
  // one behind the other; and sum += scale * such values, where they were chosen. kInvalidArgument: a choice of more
  // elements than there are, or of a tensor of 2^32 or more.
  virtual absl::Status TakeRandom(const kernels::RandomChoice& choice, float* values, float* to, Stream stream) = 0;
  virtual absl::Status AddRandom(const kernels::RandomChoice& choice, const float* from, float scale, float* sum,
                                 Stream stream) = 0;

  // device/kernels/scatter.h: makes elements of `to` what a list says; and takes back what was chosen and is to be sent
  // yet.
  virtual absl::Status PutElements(const kernels::ElementList& list, float* to, Stream stream) = 0;
  virtual absl::Status TakeBack(const kernels::ReturnedList& returned, Stream stream) = 0;

  // A pass of PowerSGD over matrices that share no memory (device/kernels/low_rank.h). kInvalidArgument: a matrix
  // without elements, or of another rank than 1 to kMostRank.
  virtual absl::Status LowRank(kernels::LowRankPass pass, std::span<const kernels::LowRankMatrix> matrices,
                               Stream stream) = 0;
};

// Bytes of a payload of `count` elements, without its header.
constexpr int64_t QuantizedBytes(Quantizer kind, int64_t count) {
  constexpr int kBits[kQuantizers] = {32, 16, 16, 8, 8, 8, 4, 1, 2};
  const int64_t bits = kBits[static_cast<int>(kind)];
  if (bits >= 16) return count * (bits / 8);
  return (count + 255) / 256 * 4 + count / 8 * bits + (count % 8 * bits + 7) / 8;
}

// The most bytes that EncodeSparse writes of a tensor of `count` elements of which `selected` or fewer are chosen.
int64_t MostSparseBytes(int64_t count, int64_t selected, kernels::SparseValues values);

// The errors that the above speak of.
absl::Status CheckQuantization(const float* gradient, const float* kept, int64_t count, const std::byte* out);
absl::Status CheckDequantization(const std::byte* from);
absl::Status CheckSparse(int64_t count);
absl::Status CheckRandom(const kernels::RandomChoice& choice);
absl::Status CheckSelection(DType gradients, const kernels::DgcStep& step);
absl::Status CheckLowRank(std::span<const kernels::LowRankMatrix> matrices);

}  // namespace gyre::device
