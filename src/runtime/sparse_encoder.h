// SparseEncoder: the codecs of a sparse exchange, each of this rank's piece of a gradient (runtime/host_pieces.h), and
// what they make of a part. For sparse_exchange.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compression/codec.h"
#include "compression/large_buffer.h"
#include "compression/payload.h"
#include "compression/state.h"
#include "runtime/compressed_exchange.h"
#include "runtime/host_pieces.h"
#include "runtime/sparse_split.h"

namespace gyre::internal {

// What this rank sends of a part, as far as it is encoded.
struct SparseEncoding {
  using Length = uint32_t;

  ExchangePart part = {};
  size_t done = 0;                       // gradients
  size_t flushed = 0;                    // elements of `plain` that are ready
  std::vector<float> plain = {};         // gradients that go along as they are, one after the other
  std::vector<float> kept = {};          // of these, what was rounded off before; empty where nothing is
  std::vector<std::byte> payloads = {};  // of the others, a Length before each
  std::vector<float> momenta = {};       // what u was where they send, one after the other, if it may have to go back
  absl::Status status = absl::OkStatus();
};

// How the values of a sparse codec travel.
ValueType ValuesOf(const Compression& compression);

// Not thread-safe.
class SparseEncoder {
 public:
  // `settings` and `pieces` outlive it. `codecs`: by place, of this rank's piece; null where a gradient is not covered.
  SparseEncoder(const Compression& compression, const ExchangeSettings& settings, const HostPieces& pieces,
                std::vector<std::unique_ptr<compression::Codec>> codecs);

  // As CompressedExchange's; Flush is of this rank's piece.
  bool WantsNorm() const { return dgc_ && dgc_->clip > 0; }
  void BeginStep(int64_t step, double norm);
  bool dense_step() const { return dgc_ && sparsity_ == 0; }
  absl::Status Flush(int tensor, std::span<float> values);

  // Encodes one more gradient; those of which something is sent are cleared. False: all are, or one has failed.
  // REQUIRES: where hosts reduce, `plain` is all there is of the host's sums.
  bool EncodeNext(SparseEncoding& to);

  const std::string& NameOf(int tensor) const { return settings_.tensors[static_cast<size_t>(tensor)].name; }
  bool goes_plain(const ExchangePart& part, size_t i) const {
    return part.dense || codecs_[static_cast<size_t>(part.tensors[i])] == nullptr;
  }
  compression::PayloadKind KindOf(const ExchangePart& part) const {
    return part.dense ? compression::PayloadKind::kF32 : plain_kind_;
  }

  // Calls visit(place in the part, elements) for a piece of each gradient that goes plain.
  template <typename Visit>
  void ForEachPlain(const ExchangePart& part, int piece, const Visit& visit) const {
    for (size_t i = 0; i < part.tensors.size(); ++i) {
      if (!goes_plain(part, i)) continue;
      visit(i, pieces_.Of(std::ssize(part.values[i]), piece).of(part.values[i]));
    }
  }

  // What of an encoding is not told to the other ranks, or rounded off: it is to be sent yet.
  void TakeBack(const SparseEncoding& from, std::span<const SparseSplit::Returned> returned);

  // By piece: elements of all gradients that go plain.
  std::vector<int64_t> PlainTotals(const ExchangePart& part) const;

  // How many elements of a covered gradient each rank sends in this step, or a host's ranks together.
  int64_t Wanted(int tensor) const;

  // What is kept of this rank's piece of a gradient, what is still to be sent last; none if nothing is.
  compression::StateArrays ArraysOf(int tensor);

  // Of all gradients of which anything is kept.
  std::vector<compression::StateArrays> state();

 private:
  bool InWarmup() const;
  bool Loses(double density) const;
  absl::Status EncodePayload(int tensor, std::span<float> values, SparseEncoding& to);

  const ExchangeSettings& settings_;
  const HostPieces& pieces_;
  const std::vector<std::unique_ptr<compression::Codec>> codecs_;  // by place; null: not covered
  const compression::PayloadKind plain_kind_;                      // of what is not covered
  const bool may_split_;
  std::optional<Dgc> dgc_;                      // then codecs are DgcTensors
  std::vector<compression::LargeBuffer> kept_;  // by place, of what is not covered: what was rounded off
  int64_t step_ = 0;
  double sparsity_ = 0;  // of this step
  float clip_scale_ = 1;
  std::vector<std::byte> payload_;
  compression::Decoder decoder_;
};

}  // namespace gyre::internal
