// What the runtime asks of one GPU: memory, streams, and the kernels on whole buffers. cuda/ does it on a GPU; the
// tests' fake in host memory, so that what stands on this needs no GPU to be tested.
//
// Work is queued on streams and done in a stream's order; nothing here waits for the GPU but what says so. Pointers are
// to memory that the GPU reaches. A status names the call that failed and the GPU's own words for it; an error of
// earlier work on the GPU may be reported by any later call. Thread-safe, but for one stream used by two threads, whose
// order is then undefined.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/pack_table.h"
#include "device/reduce.h"

namespace gyre::device {

class Gpu {
 public:
  // A cudaStream_t of the caller's, or one of CreateStream; null is the default stream.
  using Stream = void*;

  // A pack table that lies on the GPU. It may be destroyed once the work that uses it has been done,
  // and must be before its Gpu.
  class Table {
   public:
    virtual ~Table() = default;
    virtual const PackTable& host() const = 0;
  };

  virtual ~Gpu() = default;

  virtual std::string name() const = 0;

  // Memory on the GPU, aligned to 256 bytes. kResourceExhausted if there is not enough.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;
  virtual void Free(void* memory) = 0;  // waits for work that uses it

  // With the highest priority that the GPU has, for exchanging is what others wait for.
  virtual absl::StatusOr<Stream> CreateStream() = 0;
  virtual void DestroyStream(Stream stream) = 0;
  virtual absl::Status Synchronize(Stream stream) = 0;  // blocks until what is queued has been done

  // Between host and GPU or within the GPU. Host memory must stay as it is until the copy has been done.
  virtual absl::Status Copy(void* to, const void* from, int64_t bytes, Stream stream) = 0;

  // Blocks: tables are made once.
  virtual absl::StatusOr<std::unique_ptr<Table>> Upload(PackTable table) = 0;

  // buffer[segment.first + i] = scale * segment.data[i], and back: segment.data[i] = scale * buffer[...]. Converted
  // through float and rounded once, to nearest even. kInvalidArgument: a scale other than 1 for what is not
  // Convertible.
  virtual absl::Status Pack(const Table& table, void* buffer, double scale, Stream stream) = 0;
  virtual absl::Status Unpack(const Table& table, const void* buffer, double scale, Stream stream) = 0;

  // As device::Reduce, to the bit but for the payloads of NaNs. kInvalidArgument: more than kMaxOperands sources or
  // destinations, or none.
  static constexpr int kMaxOperands = 32;
  virtual absl::Status Reduce(const Reduction& reduction, std::span<const void* const> sources,
                              std::span<void* const> destinations, int64_t count, Stream stream) = 0;

  // Adds to *found, which lies on the GPU, how many elements are NaN or infinite. Integers never are.
  virtual absl::Status CountNonFinite(ConstTensorView view, uint64_t* found, Stream stream) = 0;
};

// kInvalidArgument if `scale` is not 1 and the table has what is not Convertible.
absl::Status CheckScale(const PackTable& table, double scale);

// kInvalidArgument if there are no sources or destinations, or more than kMaxOperands.
absl::Status CheckOperands(size_t sources, size_t destinations);

}  // namespace gyre::device
