// HostGradients: what the ranks of a host do in its memory before a sparse exchange sends anything to other hosts: they
// add up their gradients, each rank its piece of each (runtime/host_pieces.h).
//
// What is kept of pieces is saved and restored as arrays of whole gradients, so that it is the same for any ranks on
// any hosts: then a rank may hold what is another's to go on with. It is handed over until the next step, in which the
// ranks of the host add it up as well.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/call.h"
#include "compression/large_buffer.h"
#include "compression/state.h"
#include "runtime/compressed_exchange.h"
#include "runtime/host_pieces.h"
#include "runtime/host_reduction.h"
#include "runtime/sparse_encoder.h"

namespace gyre::internal {

// Not thread-safe.
class HostGradients {
 public:
  // All outlive it.
  HostGradients(const ExchangeSettings& settings, const HostPieces& pieces, SparseEncoder& encoder)
      : settings_(settings), pieces_(pieces), encoder_(encoder), reduction_(pieces, settings.rank) {}

  void BeginStep() { agreed_ = false; }

  // Begins with a part, which stays until its calls have ended. Then Next: the next call among the ranks of this host,
  // empty once all have ended. Covered gradients' pieces are then the host's sums.
  void Begin(const ExchangePart& part);
  std::optional<Call> Next();

  // After that: this rank's piece of the sums of gradients that go plain, one after the other.
  std::vector<float> TakePlain();

  // What SparseEncoder::state has, of whole gradients. It is no codec's from now on, until the next step.
  std::vector<compression::StateArrays> HandOver();

 private:
  enum class Stage { kAgree, kTakeOver, kReduce };

  void AddHanded();
  void TakeOver();
  void AddGradients();

  const ExchangeSettings& settings_;
  const HostPieces& pieces_;
  SparseEncoder& encoder_;
  HostReduction reduction_;
  const ExchangePart* part_ = nullptr;
  Stage stage_ = Stage::kAgree;
  bool agreed_ = false;                                        // in this step: whether anything was handed over
  float any_handed_ = 0;                                       // above 0: by a rank of this host
  std::vector<std::vector<compression::LargeBuffer>> handed_;  // by place; empty: nothing is handed over
  std::vector<float> packed_;                                  // gradients that go plain, piece by piece
};

}  // namespace gyre::internal
