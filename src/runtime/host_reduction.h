// HostReduction: arrays that the ranks of a host add up in its memory, each rank its own piece, one call each. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "collectives/call.h"
#include "runtime/host_pieces.h"

namespace gyre::internal {

// Not thread-safe.
class HostReduction {
 public:
  // `rank` is one of the host's. `pieces` outlives it.
  HostReduction(const HostPieces& pieces, int rank) : pieces_(pieces), rank_(rank) {}

  // An array is to be reduced: its pieces are HostPieces::Of, or have the lengths `counts`, one for each piece. Its
  // memory stays until its call has ended. Then this rank's piece is the sum, and the rest is nothing.
  void Add(std::span<float> values);
  void Add(std::span<float> values, std::vector<int64_t> counts);

  // The next call, among the ranks of this host; it stays as it is until the one after it. Empty: all have ended.
  std::optional<Call> Next();

 private:
  struct Array {
    std::span<float> values;
    std::vector<int64_t> counts;  // by rank of the host
  };

  const HostPieces& pieces_;
  const int rank_;
  std::deque<Array> waiting_;
  Array current_;
};

}  // namespace gyre::internal
