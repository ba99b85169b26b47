#include "device/pack_table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::device {

namespace {

absl::Status CheckSegment(const Segment& segment, size_t number, DType buffer_dtype, int64_t free_from) {
  const auto wrong = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("segment ", number, " (", segment.count, " of ",
                                                   ToAbsl(DTypeName(segment.dtype)), " at element ", segment.first,
                                                   ") ", ToAbsl(what)));
  };
  if (segment.count < 0 || segment.first < 0) return wrong("has a negative size or place");
  if (segment.first > std::numeric_limits<int64_t>::max() / 8 - segment.count) return wrong("is too large");
  if (segment.count > 0 && segment.data == nullptr) return wrong("has no memory");
  if (segment.first < free_from) return wrong("overlaps the one before it");
  const bool convertible = Convertible(segment.dtype) && Convertible(buffer_dtype);
  if (segment.dtype != buffer_dtype && !convertible) {
    return wrong(absl::StrCat("cannot be converted to the buffer's ", ToAbsl(DTypeName(buffer_dtype))));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PackTable> MakePackTable(std::span<const Segment> segments, DType buffer_dtype, int64_t tile_bytes) {
  PackTable table{.buffer_dtype = buffer_dtype, .segments = {segments.begin(), segments.end()}};
  // A multiple of 16 elements, hence of 16 bytes, whatever the dtype.
  const int64_t tile_elements = std::clamp<int64_t>(tile_bytes / DTypeSize(buffer_dtype) & ~int64_t{15}, 16, 1 << 24);
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    if (auto checked = CheckSegment(segment, s, buffer_dtype, table.buffer_count); !checked.ok()) return checked;
    for (int64_t first = 0; first < segment.count; first += tile_elements) {
      table.tiles.push_back({.first = first,
                             .count = static_cast<int32_t>(std::min(tile_elements, segment.count - first)),
                             .segment = static_cast<int32_t>(s)});
    }
    table.buffer_count = segment.first + segment.count;
  }
  return table;
}

}  // namespace gyre::device
