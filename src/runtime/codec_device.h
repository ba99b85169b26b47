// CodecDevice: where gradients are that travel compressed, and who does the codecs' work on them: this machine's
// processors, at once; or a GPU, in the order of one stream. Exchanges (runtime/compressed_exchange.h) ask nothing else
// of either, and so are the same on both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compression/payload.h"
#include "compression/state.h"
#include "device/kernels/low_rank.h"
#include "gyre/compression.h"
#include "gyre/tensor.h"
#include "runtime/compression_cost.h"

namespace gyre::internal {

struct ExchangeSettings;
class HostPieces;
class SparseEncoder;

// Bytes between codecs, which work on the device, and calls, which work in the host's memory. On the host that is one
// place. Not thread-safe.
class Parcel {
 public:
  virtual ~Parcel() = default;

  // From now on it is of so many bytes, whose contents are any. kResourceExhausted: it is as it was.
  virtual absl::Status Resize(int64_t bytes) = 0;
  virtual int64_t size() const = 0;

  // On the device, where pieces that begin at multiples of CodecDevice::alignment are aligned; in the host's memory.
  virtual std::byte* there() = 0;
  virtual std::byte* here() = 0;

  // What is written there by what was queued so far comes here: it has come once CodecDevice::Done says so.
  virtual absl::Status Bring() = 0;

  // What is here goes there, before what is queued from now on. It must stay until a later Bring is done, of any parcel
  // of the device.
  virtual absl::Status Send() = 0;

  TensorView view() { return {here(), size(), DType::kU8}; }
};

// Not thread-safe. Errors: kResourceExhausted where memory is asked for; otherwise the GPU's own. Both name the GPU.
class CodecDevice {
 public:
  virtual ~CodecDevice() = default;

  // Whether gradients are in the host's memory. Only there may ranks of a host add up theirs before anything is sent,
  // and do regions of sparse sums have one rank each that adds them up where the choice is not global.
  virtual bool on_host() const = 0;

  // What codecs take there. Blocks for some ms, but only the first time where that would hold up what is queued.
  virtual CodecSpeed Speed(const Compression& compression) = 0;

  // Payloads that Quantize writes begin at multiples of so many bytes.
  virtual int64_t alignment() const = 0;

  // Floats there, 0 at first, for as long as the object lives.
  virtual absl::StatusOr<std::span<float>> Keep(int64_t count) = 0;

  // Floats there of any content, which what is queued may use until Scratch is called again.
  virtual absl::StatusOr<std::span<float>> Scratch(int64_t count) = 0;

  virtual std::unique_ptr<Parcel> MakeParcel() = 0;  // the object outlives it

  // As compression::Quantize and compression::DequantizeAdd, of what is there.
  virtual absl::Status Quantize(compression::PayloadKind kind, const float* gradient, float* kept, int64_t count,
                                uint64_t seed, std::byte* out) = 0;
  virtual absl::Status DequantizeAdd(compression::PayloadKind kind, const std::byte* from, int64_t count, float scale,
                                     float* sum) = 0;
  virtual absl::Status Zero(std::span<float> values) = 0;

  // sum += values, which become 0. This and what follows: bit by bit as on any device.
  virtual absl::Status Move(std::span<float> values, std::span<float> sum) = 0;

  // sum += scale * values
  absl::Status AddScaled(std::span<const float> values, float scale, std::span<float> sum) {
    return DequantizeAdd(compression::PayloadKind::kF32, std::as_bytes(values).data(), std::ssize(values), scale,
                         sum.data());
  }

  // As compression::RunPass, of matrices that are there and share no memory; what is in `parts` is no matter.
  virtual absl::Status RunPass(device::kernels::LowRankPass pass,
                               std::span<const device::kernels::LowRankMatrix> matrices) = 0;

  // The codecs of a sparse exchange; the object outlives it.
  virtual absl::StatusOr<std::unique_ptr<SparseEncoder>> MakeSparseEncoder(const Compression& compression,
                                                                           const ExchangeSettings& settings,
                                                                           const HostPieces& pieces) = 0;

  // Begins to look at gradients, for what a step has to know of them all before it changes anything: once Done says so,
  // Looked has it. In this order; the bits of `squares` need not be those of another device.
  struct Facts {
    double squares = 0;                    // the sum of those of all finite elements
    std::vector<int64_t> non_finite = {};  // by gradient: how many others there are
  };
  virtual absl::Status Look(std::span<const std::span<const float>> gradients) = 0;
  virtual Facts Looked() = 0;

  // Whether all is here that was to be brought. Looks, and does not wait.
  virtual absl::StatusOr<bool> Done() = 0;
  virtual std::string Awaited() const = 0;  // what Done waits for: "GPU 0 of rank 1 had not ..."

  // compression::SaveState and compression::RestoreState, of arrays that are there. Block. On failure nothing is
  // changed, but where a GPU fails midway.
  virtual absl::StatusOr<std::vector<std::byte>> Save(std::span<const compression::StateArrays> codecs) = 0;
  virtual absl::Status Restore(std::span<const std::span<const std::byte>> saved,
                               std::span<const compression::StateArrays> codecs) = 0;
};

std::shared_ptr<CodecDevice> MakeHostDevice();

}  // namespace gyre::internal
