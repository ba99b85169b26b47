#include "runtime/host_pieces.h"

#include <algorithm>

namespace gyre::internal {

HostPieces::HostPieces(std::span<const int> hosts) {
  for (const int host : hosts) {
    if (host >= static_cast<int>(sizes_.size())) sizes_.resize(static_cast<size_t>(host) + 1);
    places_.push_back({host, sizes_[static_cast<size_t>(host)]++});
  }
  pieces_ = sizes_.empty() ? 0 : *std::ranges::min_element(sizes_);
}

HostPieces::Piece HostPieces::Of(int64_t count, int local) const {
  if (local >= pieces_) return {};
  constexpr int64_t kLine = 16;  // pieces begin at cache lines
  const int64_t lines = (count + kLine - 1) / kLine;
  const int64_t begin = std::min(count, lines * local / pieces_ * kLine);
  return {begin, std::min(count, lines * (local + 1) / pieces_ * kLine) - begin};
}

}  // namespace gyre::internal
