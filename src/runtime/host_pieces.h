// HostPieces: which rank of a host answers for which elements of a gradient, where a host's ranks reduce their
// gradients in its memory before anything goes to other hosts. Rank number k of each host has piece k of each, for as
// many k as the smallest host has ranks; what is exchanged between hosts is of the same piece. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gyre::internal {

class HostPieces {
 public:
  struct Piece {
    int64_t begin = 0, count = 0;  // elements

    std::span<float> of(std::span<float> values) const {
      return values.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    }
  };

  // `hosts`: by rank, the number of its host, from 0 on in the order of first ranks.
  explicit HostPieces(std::span<const int> hosts);

  int ranks() const { return static_cast<int>(places_.size()); }
  int hosts() const { return static_cast<int>(sizes_.size()); }
  bool reduces() const { return hosts() < ranks(); }  // a host has several ranks
  int pieces() const { return pieces_; }
  int host(int rank) const { return places_[static_cast<size_t>(rank)].host; }
  int local(int rank) const { return places_[static_cast<size_t>(rank)].local; }  // among its host's, in their order
  int host_size(int host) const { return sizes_[static_cast<size_t>(host)]; }
  bool has_piece(int rank) const { return local(rank) < pieces_; }

  // Piece `local` of `count` elements: empty from pieces() on.
  Piece Of(int64_t count, int local) const;

 private:
  struct Place {
    int host, local;
  };
  std::vector<Place> places_;  // by rank
  std::vector<int> sizes_;     // by host
  int pieces_ = 0;
};

}  // namespace gyre::internal
