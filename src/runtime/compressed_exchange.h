// CompressedExchange: how the gradients of a bucket are summed over the ranks in fewer bytes: work on this rank, and
// between it the collective calls that carry what it made. One file for each family of codecs; which buckets go this
// way is the compressor's (runtime/compressor.h).
//
//   quantised   alltoall of encoded slices, each rank decodes and adds up its own, encodes the sum, allgather
//   sparse      allgather of what each rank sends, and every rank adds up all; among many ranks, or for a global
//               choice, alltoall of it, each rank adds up its own region, and allgather of the sums
//   low rank    allreduce of one factor, then of the other
//
// All ranks decode the same bytes in the same order, so they get the same bits. Why not a ring that decodes and encodes
// at every hop: docs/decisions/compressed_exchange.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/call.h"
#include "compression/state.h"
#include "gyre/compression.h"
#include "runtime/call_sequence.h"
#include "runtime/compression_cost.h"

namespace gyre::internal {

class CodecDevice;

// What an exchange knows of a gradient.
struct ExchangeTensor {
  std::string name;
  std::vector<int64_t> shape;
  int64_t count = 0;
  bool covered = false;  // compressed; what is not goes along as it is
};

struct ExchangeSettings {
  std::vector<ExchangeTensor> tensors;  // by place
  int rank = 0, ranks = 1;
  std::vector<int> hosts = {};  // by rank: the number of its host; empty: each is on one of its own
  ReduceOp op = ReduceOp::kAverage;
  double prescale = 1, postscale = 1;
  double link_bytes_per_second = 1.25e9;  // infinite: shared memory
  int most_gathered = kMostGathered;      // of sparse codecs: more ranks than these split their sums

  // By what a sum over the ranks becomes the result.
  float scale() const {
    const double divisor = op == ReduceOp::kAverage ? ranks : 1;
    return static_cast<float>(prescale * postscale / divisor);
  }
};

// Gradients that are exchanged together: for each its place, and its elements, which become the results, in the memory
// of the exchange's device.
struct ExchangePart {
  std::vector<int> tensors = {};
  std::vector<std::span<float>> values = {};
  bool dense = false;  // its covered gradients go along as they are, with what was kept of them
};

// Of all gradients of one reducer. Not thread-safe.
class CompressedExchange : public CallSequence {
 public:
  // Begins step `step` (1 the first). `norm`: of the covered gradients of this rank, if WantsNorm.
  virtual void BeginStep(int64_t /*step*/, double /*norm*/) {}
  virtual bool WantsNorm() const { return false; }

  // Whether this step's parts go dense, because what the options ask for now would be larger.
  virtual bool dense_step() const { return false; }

  // Makes a part's covered gradients what is to be sent where they go dense: with what was kept of them, all of which
  // is taken to be sent. kFailedPrecondition as Next.
  virtual absl::Status Flush(const ExchangePart& part) = 0;

  // Does some of the work for a part that will be begun: its gradients are there, and are the exchange's from now on.
  // Parts are begun in the order in which they were prepared first. False: there was nothing left to do.
  virtual bool Prepare(const ExchangePart& /*part*/) { return false; }

  // Begins the exchange of a part, whose memory must stay until it has ended. One at a time. An error is this rank's
  // own.
  virtual absl::Status Begin(ExchangePart part) = 0;

  // Errors:
  //   kFailedPrecondition  a gradient is not finite and the options refuse it
  //   kDataLoss            what another rank sent cannot be read
  //   kResourceExhausted   a GPU, or the arena, has no room for what is on its way
  absl::StatusOr<std::optional<Call>> Next() override = 0;

  // Whether ranks reduce gradients in their host's memory first, and keep of them only pieces: then parts that go dense
  // are exchanged too (ExchangePart::dense), rather than flushed.
  virtual bool reduces_in_host() const { return false; }

  // What this rank has encoded for the part that was begun last.
  virtual int64_t sent_bytes() const = 0;

  // What is kept from step to step, one entry a gradient of which anything is, on the device. Where hosts reduce first,
  // whole arrays that are handed over until the next step, which adds them up in the host: as much memory, and time, as
  // all of it.
  virtual std::vector<compression::StateArrays> state() = 0;

  // What else the next step begins with, which all ranks have alike: low-rank factors, where regions begin.
  virtual std::vector<uint32_t> common() const { return {}; }

  // Takes what common() gave for the same gradients and options. False: it is of others; nothing has changed.
  virtual bool TakeCommon(std::span<const uint32_t> words) { return words.empty(); }
};

// Whether of the sums only the largest become the result (TopK::global, Dgc::global).
bool IsGlobal(const Compression& compression);

// Whether what so many ranks have chosen, or hosts where these reduce first, is added up by regions. Random codecs
// choose the same on all ranks: they do not.
bool SplitsSums(const Compression& compression, int ranks, int most_gathered);

// Whether there is one for such a codec of such a gradient, by shape, size and the options' own limits.
bool IsCovered(const Compression& compression, const ExchangeTensor& tensor);

// REQUIRES: valid options, anything but NoCompression; covered tensors are as IsCovered says.
absl::StatusOr<std::unique_ptr<CompressedExchange>> MakeCompressedExchange(const Compression& compression,
                                                                           ExchangeSettings settings,
                                                                           std::shared_ptr<CodecDevice> device);

// --- The families ---

absl::StatusOr<std::unique_ptr<CompressedExchange>> MakeQuantizedExchange(const Compression& compression,
                                                                          ExchangeSettings settings,
                                                                          std::shared_ptr<CodecDevice> device);
absl::StatusOr<std::unique_ptr<CompressedExchange>> MakeSparseExchange(const Compression& compression,
                                                                       ExchangeSettings settings,
                                                                       std::shared_ptr<CodecDevice> device);
absl::StatusOr<std::unique_ptr<CompressedExchange>> MakeLowRankExchange(const PowerSgd& power,
                                                                        ExchangeSettings settings,
                                                                        std::shared_ptr<CodecDevice> device);

// Bytes as a tensor, for calls.
inline TensorView BytesView(std::vector<std::byte>& bytes) {
  return {bytes.data(), static_cast<int64_t>(bytes.size()), DType::kU8};
}

}  // namespace gyre::internal
