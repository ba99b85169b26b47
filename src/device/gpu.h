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
#include "device/gpu_allocator.h"
#include "device/gpu_update.h"
#include "device/pack_table.h"
#include "device/reduce.h"

namespace gyre::device {

class GpuCodecs;
class GpuGraph;
class GpuSharing;

class Gpu : public GpuAllocator {
 public:
  // A cudaStream_t of the caller's, or one of CreateStream; null is the default stream.
  using Stream = void*;

  // A mark in a stream's order; never null.
  using Event = void*;

  // A pack table that lies on the GPU. It may be destroyed once the work that uses it has been queued, and must be
  // before the stream of that work, and its Gpu.
  class Table {
   public:
    virtual ~Table() = default;
    virtual const PackTable& host() const = 0;
  };

  virtual std::string name() const = 0;
  virtual int ordinal() const = 0;

  // Of 16 bytes: the same for all processes that see this GPU, and for no other GPU.
  virtual std::string uuid() const = 0;

  // Where it is on its host's buses: alike for the slices of one GPU (MIG), which have a uuid each, and for nothing
  // else of one host.
  virtual int64_t place() const = 0;

  // With other processes (gpu_sharing.h). Lives as long as this.
  virtual GpuSharing& sharing() = 0;

  // With the highest priority that the GPU has, for exchanging is what others wait for.
  virtual absl::StatusOr<Stream> CreateStream() = 0;
  virtual void DestroyStream(Stream stream) = 0;
  virtual absl::Status Synchronize(Stream stream) = 0;  // blocks until what is queued has been done

  // Record marks what is queued on `stream` so far; what is queued on a stream behind a Wait is done after what the
  // event's latest Record before it marked. An event may be recorded again, and destroyed, at any time: waits that are
  // queued keep what they wait for. One that was never recorded is waited for by nobody.
  virtual absl::StatusOr<Event> CreateEvent() = 0;
  virtual void DestroyEvent(Event event) = 0;
  virtual absl::Status Record(Event event, Stream stream) = 0;
  virtual absl::Status Wait(Stream stream, Event event) = 0;

  // kFailedPrecondition for a stream that is being captured into a graph. Record and Wait are that too there, and leave
  // it alone.
  virtual absl::Status CheckNotCaptured(Stream stream) = 0;

  // What is queued on `stream` from now on, by whatever thread, is not done, but goes into the graph (gpu_graph.h)
  // until that ends the capture. To Synchronize with the stream meanwhile spoils the graph, as it does when any thread
  // of the process waits for the whole GPU or its context (cudaDeviceSynchronize), which gets an error. Other streams
  // go on as ever. REQUIRES: one of CreateStream, with nothing queued.
  virtual absl::StatusOr<std::shared_ptr<GpuGraph>> Capture(Stream stream) = 0;

  // Whether what the latest Record marked has been done, and the host sees what it wrote. Does not block.
  virtual absl::StatusOr<bool> Done(Event event) = 0;

  // Host memory that copies run from and to at full speed, beside kernels. `memory`: a multiple of the page size, as
  // `bytes`; pinned by nobody; unpinned before it is unmapped, once no copy uses it.
  virtual absl::Status Pin(void* memory, int64_t bytes) = 0;
  virtual void Unpin(void* memory) = 0;

  // Between host and GPU or within the GPU. Host memory must stay as it is until the copy has been done.
  virtual absl::Status Copy(void* to, const void* from, int64_t bytes, Stream stream) = 0;

  virtual absl::Status Zero(void* memory, int64_t bytes, Stream stream) = 0;  // on the GPU

  // For use on one stream alone, or on others that this one has come to wait for before the table goes. Blocks for the
  // copy of the table itself, behind nothing else that is queued anywhere.
  virtual absl::StatusOr<std::unique_ptr<Table>> Upload(PackTable table, Stream used_on) = 0;

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

  // Adds to parts[0 .. kSquareParts - 1], which lie on the GPU, the squares of the elements, in double precision: which
  // element goes where, and in which order, is the same on every GPU, so that equal elements give equal bits. Where
  // there is a counter `non_finite`, which lies there too, elements that are NaN or infinite are counted in it, and not
  // in the sums. kInvalidArgument for other than floating-point dtypes.
  static constexpr int kSquareParts = 512, kSquareThreads = 256;  // parts; sums that each is the tree of
  virtual absl::Status AddSquares(ConstTensorView view, double* parts, uint64_t* non_finite, Stream stream) = 0;

  // One update of each tensor, which overlap nowhere: the bits that Optimizer gives on the host, but for the payloads
  // of NaNs.
  virtual absl::Status Update(const UpdateRule& rule, std::span<const kernels::Weights> tensors, Stream stream) = 0;

  // The kernels of compression. Lives as long as this.
  virtual GpuCodecs& codecs() = 0;
};

// kInvalidArgument if `scale` is not 1 and the table has what is not Convertible.
absl::Status CheckScale(const PackTable& table, double scale);

// kInvalidArgument if there are no sources or destinations, or more than kMaxOperands.
absl::Status CheckOperands(size_t sources, size_t destinations);

}  // namespace gyre::device
