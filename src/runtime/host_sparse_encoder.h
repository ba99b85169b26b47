// HostSparseEncoder: the codecs of a sparse exchange by the processor, gradient by gradient.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compression/codec.h"
#include "compression/large_buffer.h"
#include "runtime/sparse_encoder.h"

namespace gyre::internal {

// Not thread-safe.
class HostSparseEncoder final : public SparseEncoder {
 public:
  static absl::StatusOr<std::unique_ptr<SparseEncoder>> Create(const Compression& compression,
                                                               const ExchangeSettings& settings,
                                                               const HostPieces& pieces);

  absl::Status Flush(const ExchangePart& part) override;
  bool prepares() const override { return !pieces().reduces(); }  // the host's sums come first
  bool EncodeNext(SparseEncoding& to) override;
  absl::Status Add(std::span<const SparseAddend> all) override;
  absl::Status DeliverPlain(const ExchangePart& part, const PlainPart& plain) override;
  void Place(const SparseSplit::Results& results) override;
  absl::Status TakeBack(const SparseEncoding& from, const SparseSplit& split) override;
  compression::StateArrays ArraysOf(int tensor) override;

 private:
  // By place, of this rank's piece; null where a gradient is not covered.
  using Codecs = std::vector<std::unique_ptr<compression::Codec>>;

  HostSparseEncoder(const Compression& compression, const ExchangeSettings& settings, const HostPieces& pieces,
                    Codecs codecs);
  absl::Status FlushPiece(int tensor, std::span<float> values);
  absl::Status EncodePayload(int tensor, std::span<float> values, SparseEncoding& to);

  const Codecs codecs_;                         // DgcTensors where there is a Dgc
  std::vector<compression::LargeBuffer> kept_;  // by place, of what is not covered: what was rounded off
  std::vector<std::byte> payload_;
  compression::Decoder decoder_;
};

}  // namespace gyre::internal
