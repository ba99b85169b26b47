// One tensor's way to the wire and back: a codec turns gradients into payloads, and keeps what it does not send; a
// decoder adds payloads up. Pure: no communication, no clock. Formats: docs/wire_format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compression/sparse.h"
#include "gyre/compression.h"

namespace gyre::compression {

// Encodes the gradients of one tensor of a fixed number of elements. Not thread-safe; codecs of different tensors are
// independent of each other.
class Codec {
 public:
  virtual ~Codec() = default;

  // Replaces `out` by the payload of step `step` (any number that rises; the lots of random codecs depend on it): what
  // is to be sent of `gradient` and of what was kept. Keeps the rest.
  // kInvalidArgument, with nothing changed, if the gradient has another number of elements.
  virtual absl::Status Encode(std::span<const float> gradient, int64_t step, std::vector<std::byte>& out) = 0;

  // The same; on success the gradient is cleared besides, so that what ranks send can be added up in its place. Codecs
  // that pass over a large tensor do both in one pass.
  virtual absl::Status EncodeAndClear(std::span<float> gradient, int64_t step, std::vector<std::byte>& out);

  // What the codec keeps from step to step, each array of the tensor's size; none if it keeps nothing. What is written
  // there is what it goes on with.
  virtual std::vector<std::span<float>> state() = 0;
};

struct CodecOptions {
  double link_bytes_per_second = 1.25e9;  // of SparseOptions
};

// A codec for a tensor of `count` elements. A Dgc is one tensor's at its final sparsity (dgc.h has the whole).
// kInvalidArgument: an option out of range, a negative count, or PowerSgd, whose factors are for allreduces
// (power_sgd.h).
absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const Compression& compression, int64_t count,
                                                 const CodecOptions& options = {});

// Reads the payloads of any codec. Keeps its memory from one to the next. Not thread-safe.
class Decoder {
 public:
  // sum += scale * the payload's tensor. kDataLoss, with `sum` unchanged, if the bytes are no payload of a tensor of
  // that many elements. Memory: at most eight times `bytes`.
  absl::Status DecodeAdd(std::span<const std::byte> bytes, float scale, std::span<float> sum);

 private:
  SparseDecoder sparse_;
};

// The position that a RandomK payload of `kept` elements carries as its i-th: one of the i-th of `kept` runs of nearly
// the same length, into which `count` elements are cut. REQUIRES: 0 <= i < kept <= count < 2^32.
uint32_t RandomPosition(uint64_t seed, int64_t i, int64_t kept, int64_t count);

// How many of `count` elements a sparsity leaves: at least one if there are any.
int64_t KeptCount(double sparsity, int64_t count);

}  // namespace gyre::compression
