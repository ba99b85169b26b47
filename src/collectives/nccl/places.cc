#include "collectives/nccl/places.h"

#include <algorithm>
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
  if (ScratchBytes(call) > 0) return {};
  Places places{.in = PlaceOf(call.in.data, memory), .out = PlaceOf(call.out.data, memory)};
  const auto at_segment = [&](const void* whole) -> const void* {
    const int64_t begin = Displacements(call.counts)[static_cast<size_t>(rank)] * DTypeSize(call.in.dtype);
    return static_cast<const std::byte*>(whole) + begin;
  };
  if (call.kind == CallKind::kAllGather && call.in.data == at_segment(call.out.data)) places.in = places.out;
  if (call.kind == CallKind::kReduceScatter && call.out.data == at_segment(call.in.data)) places.out = places.in;
  if (call.kind == CallKind::kReduce && rank != call.root) places.out = places.in;
  return places;
}

Conclusion Conclude(CallKind kind, std::span<const Told> told) {
  Conclusion result{.registers = true};
  for (const Told& each : told) {
    const Places &places = each.places, &first = told[0].places;
    // Only the root has the output of a reduce.
    const bool same = kind == CallKind::kReduce ? places.in == first.in : places == first;
    result.registers = result.registers && same && places.in.bytes > 0 && places.out.bytes > 0;
    result.detours = result.detours || each.registered != 0;
    result.takes_memory = result.takes_memory || each.scratch != 0;
    result.largest = std::max(result.largest, each.largest);
  }
  result.detours = result.detours && !result.registers;
  result.takes_memory = result.takes_memory || result.detours;
  return result;
}

}  // namespace gyre::internal::nccl
