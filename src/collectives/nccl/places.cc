#include "collectives/nccl/places.h"

#include <cstddef>

#include "collectives/nccl/plan.h"

namespace gyre::internal::nccl {

namespace {

Place PlaceOf(const void* data, const Memory& memory) {
  const auto piece = memory.Find(data);
  if (!piece) return {};
  return {piece->bytes, static_cast<const std::byte*>(data) - static_cast<const std::byte*>(piece->begin)};
}

}  // namespace

Places PlacesOf(const Call& call, int rank, const Memory& memory) {
  if (call.kind == CallKind::kReduce || ScratchBytes(call) > 0) return {};
  Places places{.in = PlaceOf(call.in.data, memory), .out = PlaceOf(call.out.data, memory)};
  const auto at_segment = [&](const void* whole) -> const void* {
    const int64_t begin = Displacements(call.counts)[static_cast<size_t>(rank)] * DTypeSize(call.in.dtype);
    return static_cast<const std::byte*>(whole) + begin;
  };
  if (call.kind == CallKind::kAllGather && call.in.data == at_segment(call.out.data)) places.in = places.out;
  if (call.kind == CallKind::kReduceScatter && call.out.data == at_segment(call.in.data)) places.out = places.in;
  return places;
}

}  // namespace gyre::internal::nccl
