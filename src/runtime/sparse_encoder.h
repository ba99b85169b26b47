// SparseEncoder: what a sparse exchange asks of the device that gradients are on: to choose and encode what this rank
// sends of a part, each time of its piece of a gradient (runtime/host_pieces.h), and to add up what ranks have sent.
// One class for each device; what all share is here. For sparse_exchange.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compression/payload.h"
#include "compression/state.h"
#include "runtime/compressed_exchange.h"
#include "runtime/host_pieces.h"
#include "runtime/plain_part.h"
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
  std::vector<float> momenta = {};  // on the host: what u was where they send, one after the other, if it may go back
  absl::Status status = absl::OkStatus();
};

// A payload that a rank has sent, and what it is added to: a covered gradient, or the rank's piece of it.
struct SparseAddend {
  int rank, tensor;
  std::span<float> values;
  std::span<const std::byte> payload;
};

// How the values of a sparse codec travel.
ValueType ValuesOf(const Compression& compression);

// Not thread-safe.
class SparseEncoder {
 public:
  SparseEncoder(const Compression& compression, const ExchangeSettings& settings, const HostPieces& pieces);
  virtual ~SparseEncoder() = default;
  SparseEncoder(const SparseEncoder&) = delete;
  SparseEncoder& operator=(const SparseEncoder&) = delete;

  // As CompressedExchange's.
  bool WantsNorm() const { return dgc_ && dgc_->clip > 0; }
  void BeginStep(int64_t step, double norm);
  bool dense_step() const { return dgc_ && sparsity_ == 0; }
  virtual absl::Status Flush(const ExchangePart& part) = 0;

  // Begins with an encoding, whose part is there: what a device does at its own pace. One at a time.
  virtual absl::Status Begin(const SparseEncoding& /*to*/) { return absl::OkStatus(); }

  // As CallSequence's, of what Begin and Add have begun.
  virtual absl::StatusOr<bool> Ready() { return true; }
  virtual std::string Awaited() const { return ""; }

  // Whether parts may be encoded before they are begun.
  virtual bool prepares() const = 0;

  // Encodes one more gradient, or all that are left; those of which something is sent are cleared. False: all are, or
  // one has failed. REQUIRES: where hosts reduce, `plain` is all there is of the host's sums; Begin, unless it
  // prepares.
  virtual bool EncodeNext(SparseEncoding& to) = 0;

  // Adds up payloads, which come in the order of ranks and, of each, of gradients. kDataLoss, here or from Ready.
  virtual absl::Status Add(std::span<const SparseAddend> all) = 0;

  // The results of gradients that go plain, and what is kept of them.
  virtual absl::Status DeliverPlain(const ExchangePart& part, const PlainPart& plain) = 0;

  const std::string& NameOf(int tensor) const { return settings_.tensors[static_cast<size_t>(tensor)].name; }
  bool covers(int tensor) const { return settings_.tensors[static_cast<size_t>(tensor)].covered; }
  bool goes_plain(const ExchangePart& part, size_t i) const { return part.dense || !covers(part.tensors[i]); }
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

  // Where sums were added up by regions, results: each is of an element that is 0, and there once TakeBack has been
  // called.
  virtual void Place(const SparseSplit::Results& results) = 0;

  // What of an encoding is not told to the other ranks, or rounded off: it is to be sent yet. Where a whole entry comes
  // back, u is as if it had never been chosen.
  virtual absl::Status TakeBack(const SparseEncoding& from, const SparseSplit& split) = 0;

  // By piece: elements of all gradients that go plain.
  std::vector<int64_t> PlainTotals(const ExchangePart& part) const;

  // How many elements of a covered gradient each rank sends in this step, or a host's ranks together.
  int64_t Wanted(int tensor) const;

  // What is kept of this rank's piece of a gradient, on the device, what is still to be sent last; none if nothing is.
  virtual compression::StateArrays ArraysOf(int tensor) = 0;

  // Of all gradients of which anything is kept.
  std::vector<compression::StateArrays> state();

 protected:
  const ExchangeSettings& settings() const { return settings_; }
  const HostPieces& pieces() const { return pieces_; }
  int local() const { return pieces_.local(settings_.rank); }
  const std::optional<Dgc>& dgc() const { return dgc_; }
  compression::PayloadKind plain_kind() const { return plain_kind_; }
  int64_t step() const { return step_; }
  double sparsity() const { return sparsity_; }
  float clip_scale() const { return clip_scale_; }

  // The least sparsity above 0 that any step will have; 1: none is above 0.
  double LeastSparsity() const;

  // Whether something is kept of a gradient that goes plain: what was rounded off.
  bool keeps_plain(int tensor) const { return !covers(tensor) && plain_kind_ != compression::PayloadKind::kF32; }

 private:
  bool InWarmup() const;
  bool Loses(double density) const;

  const ExchangeSettings settings_;
  const HostPieces pieces_;
  const compression::PayloadKind plain_kind_;  // of what is not covered
  const bool may_split_;
  std::optional<Dgc> dgc_;
  int64_t step_ = 0;
  double sparsity_ = 0;  // of this step
  float clip_scale_ = 1;
};

}  // namespace gyre::internal
