// Deep gradient compression of many tensors on one GPU: the memory that its kernels need, and their tables. Results are
// those of compression::Selector, and so of compression::DgcTensor at sparsities above 0, to the bit but for the
// payloads of NaNs; no step waits for the GPU.
//
// At a sparsity of 0 all that is not 0 is chosen, and u cleared there (compression::DgcTensor, which then sends all of
// v, leaves u: accumulate with `select` false, and send v by other means).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/gpu.h"
#include "device/gpu_codecs.h"
#include "device/kernels/dgc.h"

namespace gyre::device {

// Memory of the caller's on the GPU, which stays where it is. Elements of the accumulators are float32.
struct GpuDgcTensor {
  float* momentum = nullptr;  // u; null: v += scale * g
  float* velocity = nullptr;  // v
  void* gradient = nullptr;
  int64_t count = 0;
};

struct GpuDgcOptions {
  DType gradients = DType::kF32;  // or kF16, kBF16
  double least_sparsity = 0.999;  // of all steps that choose: what memory is taken for
  bool gives_momenta = false;     // what u was where elements were chosen, which may so come back
  bool sampled = false;           // as TopK::sampled: all above a sample's threshold, or where these are more than 2 k,
                                  // the k largest
};

// What a step has chosen of a tensor: on the GPU, until the next step.
struct GpuDgcChosen {
  const uint32_t* indices;   // ascending
  float* values;             // encoders leave the rounding errors in them
  const uint32_t* selected;  // one number: how many they are
  const float* momenta;      // null unless GpuDgcOptions::gives_momenta, or where there are none
};

// As a tensor was when Read had it.
struct GpuDgcSummary {
  int64_t selected = 0;    // in the last step
  int64_t non_finite = 0;  // elements of gradients that were NaN or infinite, ever
  int64_t rescans = 0;     // steps whose list of candidates would not do, ever: these read v five times more
  float threshold = 0;     // of the next step
};

// Not thread-safe. Must be destroyed before its Gpu, once the work that was queued has been done.
class GpuDgc {
 public:
  // Blocks for the copies of its tables, behind nothing else that is queued anywhere. Takes about 60 bytes for each
  // element that is sent, and 16 KiB a tensor; 4 bytes for each element of a sample. kInvalidArgument names the tensor
  // whose memory is missing or not aligned to 16 bytes (the gradient may lie anywhere), whose size is out of range, or
  // that has momentum where the first has none, or elements are sampled.
  static absl::StatusOr<std::unique_ptr<GpuDgc>> Create(Gpu& gpu, std::span<const GpuDgcTensor> tensors,
                                                        const GpuDgcOptions& options = {});
  ~GpuDgc();
  GpuDgc(const GpuDgc&) = delete;
  GpuDgc& operator=(const GpuDgc&) = delete;

  // The GPU hangs: its memory stays taken when the object goes.
  void Abandon() { memory_ = nullptr; }

  // Accumulates all gradients, and chooses the largest of each tensor. kInvalidArgument: a sparsity below
  // least_sparsity, where it chooses, or other than that, where elements are sampled; a factor or scale that is not
  // finite.
  absl::Status Step(const kernels::DgcStep& step, Gpu::Stream stream);

  int tensors() const { return static_cast<int>(tensors_.size()); }
  GpuDgcChosen chosen(int tensor) const;

  // What EncodeSparse needs to make a payload of a tensor's chosen elements, in memory of the caller's. Values of 16
  // bits leave their rounding errors in v.
  kernels::SparseEncoding encoding(int tensor, std::byte* out, uint64_t* bytes) const;

  // Blocks until what is queued on `stream` has been done.
  absl::StatusOr<std::vector<GpuDgcSummary>> Read(Gpu::Stream stream);

 private:
  GpuDgc(Gpu& gpu, const GpuDgcOptions& options) : gpu_(gpu), options_(options) {}
  absl::Status Build(std::span<const GpuDgcTensor> tensors, Gpu::Stream stream);

  Gpu& gpu_;
  const GpuDgcOptions options_;
  void* memory_ = nullptr;
  std::vector<kernels::DgcTensor> tensors_;  // as they are on the GPU
  kernels::DgcTable table_ = {};
};

}  // namespace gyre::device
