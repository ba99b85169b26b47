#include "runtime/plain_part.h"

#include <utility>

namespace gyre::internal {

PlainPart::PlainPart(const HostPieces& pieces, int rank, float scale) : pieces_(pieces), rank_(rank) {
  for (int piece = 0; piece < pieces_.pieces(); ++piece) {
    slices_.emplace_back(pieces_.host(rank), pieces_.hosts(), scale);
  }
}

void PlainPart::Begin(compression::PayloadKind kind, std::vector<float> elements, std::vector<float> kept,
                      std::span<const int64_t> total) {
  for (size_t piece = 0; piece < slices_.size(); ++piece) {
    if (static_cast<int>(piece) == pieces_.local(rank_)) continue;
    slices_[piece].Begin(kind, std::vector<float>(static_cast<size_t>(total[piece])), {});
  }
  if (pieces_.has_piece(rank_)) own().Begin(kind, std::move(elements), std::move(kept));
}

void PlainPart::Encode(int to, std::byte* out) {
  if (shared(to)) own().Encode(pieces_.host(to), out);
}

void PlainPart::Add(int from, const std::byte* bytes) {
  if (shared(from)) own().Add(bytes);
}

int64_t PlainPart::sum_bytes(int rank) const {
  if (!pieces_.has_piece(rank)) return 0;
  return slices_[static_cast<size_t>(pieces_.local(rank))].bytes(pieces_.host(rank));
}

void PlainPart::EncodeSum(std::byte* out) {
  if (pieces_.has_piece(rank_)) own().EncodeSum(out);
}

void PlainPart::DecodeSum(int rank, const std::byte* from) {
  if (pieces_.has_piece(rank)) slices_[static_cast<size_t>(pieces_.local(rank))].Decode(pieces_.host(rank), from);
}

std::span<const float> PlainPart::kept() const {
  return pieces_.has_piece(rank_) ? own().kept() : std::span<const float>();
}

}  // namespace gyre::internal
