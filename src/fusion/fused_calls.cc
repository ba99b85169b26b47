#include "fusion/fused_calls.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace gyre::internal {

namespace {

constexpr int64_t kAlignment = 16;  // bytes; a multiple of every element's

// Elements up to where the next tensor may begin. A message may have brought any count.
int64_t Extent(const NamedSignature& signature) {
  const int64_t step = kAlignment / DTypeSize(signature.dtype);
  const int64_t count = std::min(signature.count, std::numeric_limits<int64_t>::max() - step);
  return (count + step - 1) / step * step;
}

// What must be equal within a call.
auto Terms(const NamedSignature& s) {
  return std::tuple(s.kind, s.dtype, s.op, s.prescale, s.postscale, s.on_gpu, s.group);
}

}  // namespace

int64_t NextPlace(int64_t place, const NamedSignature& signature) {
  return place + Extent(signature);
}

bool Fuses(const NamedSignature& last, int64_t place, const NamedSignature& next) {
  if (next.group == 0 || next.group_index != last.group_index + 1 || Terms(next) != Terms(last)) return false;
  if (!next.on_gpu || next.kind != NamedKind::kAllReduce || next.op == ReduceOp::kAdasum) return false;
  return Extent(next) <= kMostFusedBytes / DTypeSize(next.dtype) - place;
}

std::vector<int64_t> PlacesOf(std::span<const NamedPart> parts) {
  std::vector<int64_t> places = {0};
  for (const NamedPart& part : parts) places.push_back(NextPlace(places.back(), part.call.signature));
  return places;
}

}  // namespace gyre::internal
