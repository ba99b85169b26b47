// What `gyre-bench gpu kernels` measures: kernels on whole buffers, and the memory that they work on. All of it by
// device::Gpu, so that tests go through the same cases on a GPU that is none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/gpu.h"
#include "gyre/dtype.h"

namespace gyre::bench::gpu {

inline constexpr int64_t kFloatBytes = sizeof(float);

using Run = std::function<absl::Status()>;

struct Case {
  std::string group;  // of cases that are of a kind
  std::string name;
  int64_t bytes = 0;  // that one run reads and writes, by what it has to (docs/gpu_measuring.md)
  Run run;            // queues it on the cases' stream

  // Makes what `run` starts from, calls it once, and sets what it has left against what the host makes of the same: of
  // large arrays the first and the last elements. kDataLoss says what differs. Waits for the stream.
  std::function<absl::Status(const Run& run)> check;

  // What the next runs start from, which are to differ from those before: called between samples, queues on the cases'
  // stream. Null where speed does not depend on it.
  Run refresh{};
  // How many runs so far had to read again what they had read, which is not in `bytes`. Waits for the stream. Null
  // where none has to.
  std::function<absl::StatusOr<int64_t>()> rescans{};
};

// Cases and whatever they use, which lives as long. The Gpu and the stream outlive it. Not thread-safe.
class Cases {
 public:
  // `divisor`, a power of two up to 1024, makes all that is worked on so many times smaller: for tests.
  Cases(device::Gpu& gpu, device::Gpu::Stream stream, int64_t divisor = 1)
      : gpu_(gpu), stream_(stream), divisor_(divisor) {}
  ~Cases();
  Cases(const Cases&) = delete;
  Cases& operator=(const Cases&) = delete;

  device::Gpu& gpu() const { return gpu_; }
  device::Gpu::Stream stream() const { return stream_; }
  const std::vector<Case>& all() const { return cases_; }
  int64_t Scaled(int64_t size) const { return std::max<int64_t>(size / divisor_, 1); }

  void Add(Case what) { cases_.push_back(std::move(what)); }

  // Zeroed memory on the GPU.
  absl::StatusOr<std::byte*> Allocate(int64_t bytes);

  // Number `number` of some buffers of buffer_bytes() each, for all cases whose speed does not depend on what is there.
  absl::StatusOr<std::byte*> Buffer(size_t number);
  int64_t buffer_bytes() const { return Scaled(256 << 20); }  // several times what the largest cache holds

  // `count` elements of `dtype`, which is floating-point, with noise; after a million it repeats itself. Waits.
  absl::Status FillNormal(void* to, int64_t count, DType dtype, uint64_t seed);

  // To and from the GPU. They wait for the stream.
  template <typename T>
  absl::Status Put(void* to, const std::vector<T>& from) {
    return Copy(to, from.data(), static_cast<int64_t>(from.size() * sizeof(T)));
  }
  template <typename T>
  absl::StatusOr<std::vector<T>> Get(const void* from, int64_t count) {
    std::vector<T> to(static_cast<size_t>(count));
    if (absl::Status copied = Copy(to.data(), from, count * static_cast<int64_t>(sizeof(T))); !copied.ok()) {
      return copied;
    }
    return to;
  }
  absl::Status Zero(void* memory, int64_t bytes) { return gpu_.Zero(memory, bytes, stream_); }  // does not wait

  // Keeps what a case uses.
  template <typename T>
  T* Keep(std::unique_ptr<T> what) {
    kept_.push_back(std::shared_ptr<T>(std::move(what)));
    return static_cast<T*>(kept_.back().get());
  }

 private:
  absl::Status Copy(void* to, const void* from, int64_t bytes);

  device::Gpu& gpu_;
  device::Gpu::Stream const stream_;
  const int64_t divisor_;
  std::vector<void*> memory_;
  std::vector<std::byte*> buffers_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<Case> cases_;
};

// Those whose names have `only` in them. kInvalidArgument: none has.
absl::StatusOr<std::vector<const Case*>> Choose(const Cases& cases, std::string_view only);

// All of the following, in this order. Takes some 7 GiB of the GPU's memory.
absl::Status AddAll(Cases& cases);

// Pack and unpack of ResNet-50's gradients, each in memory of its own: as they are, and with a cast to bf16.
absl::Status AddPacking(Cases& cases);

// Sums of several buffers, to one and, as allreduces of ranks on one GPU do, back to all.
absl::Status AddReductions(Cases& cases);

// What only reads: elements that are not finite, counted, and squares, summed up.
absl::Status AddScans(Cases& cases);

// The optimizers' rules on weights in float32.
absl::Status AddUpdates(Cases& cases);

// Dense payloads, written and added up.
absl::Status AddQuantizers(Cases& cases);

// Deep gradient compression and topk, a step and its pass alone, of ResNet-50's number of elements and of ten times as
// many.
absl::Status AddSelections(Cases& cases);

// Payloads of chosen elements, written and added up, of so few that positions go in 16-bit blocks, and of so many that
// they go as bitmaps.
absl::Status AddSparse(Cases& cases);

// What PowerSGD does with a matrix.
absl::Status AddLowRank(Cases& cases);

}  // namespace gyre::bench::gpu
