// What the benchmarks need of CUDA itself: memory, a stream, and times taken by events on the GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"

namespace gyre::bench::gpu {

// `what`: what was done, for the message. kUnavailable where there is no GPU or no driver.
absl::Status Check(cudaError_t error, std::string_view what);

// At least 1. kUnavailable, with CUDA's reason, where there is none.
absl::StatusOr<int> CountGpus();

// Makes GPU `local_rank` modulo their number this thread's, and returns its ordinal.
absl::StatusOr<int> ChooseGpu(int local_rank);

// Memory of the current GPU.
class Memory {
 public:
  static absl::StatusOr<Memory> Make(int64_t bytes);
  Memory() = default;
  Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~Memory() { cudaFree(data_); }

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

// Writes `count` floats of a standard normal distribution to memory of the current GPU, by `seed`; after a million they
// repeat. Blocks until they are there.
absl::Status FillNormal(void* to, int64_t count, uint64_t seed);

// A stream of the current GPU that does not wait for the default one, and two events to take times with.
class Stream {
 public:
  static absl::StatusOr<Stream> Make();
  Stream(Stream&& other) noexcept
      : stream_(std::exchange(other.stream_, nullptr)),
        begin_(std::exchange(other.begin_, nullptr)),
        end_(std::exchange(other.end_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream();

  cudaStream_t get() const { return stream_; }
  absl::Status Synchronize() const;

  // Seconds of the GPU for one of `calls` calls of `body`, which queues work on this stream.
  absl::StatusOr<double> Time(int calls, const std::function<absl::Status()>& body) const;

 private:
  Stream() = default;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace gyre::bench::gpu
