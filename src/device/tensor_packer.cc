#include "device/tensor_packer.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/status.h"

namespace gyre::device {

namespace {

bool Same(const std::vector<Segment>& ones, const std::vector<Segment>& others) {
  return std::ranges::equal(ones, others, [](const Segment& one, const Segment& other) {
    return one.data == other.data && one.count == other.count && one.first == other.first && one.dtype == other.dtype;
  });
}

}  // namespace

absl::Status TensorPacker::MakeTable(const std::vector<Segment>& segments, DType dtype) {
  const bool again = Same(segments_, segments);
  const bool converts = std::ranges::any_of(segments, [&](const Segment& segment) { return segment.dtype != dtype; });
  if (again && table_ != nullptr) return absl::OkStatus();
  table_.reset();
  segments_ = segments;
  if (!again && !converts) return absl::OkStatus();
  ASSIGN_OR_RETURN(PackTable table, MakePackTable(segments, dtype));
  ASSIGN_OR_RETURN(table_, gpu_.Upload(std::move(table), stream_));
  return absl::OkStatus();
}

absl::Status TensorPacker::Pack(const std::vector<Segment>& segments, void* buffer, DType dtype) {
  if (segments.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(MakeTable(segments, dtype));
  if (table_ != nullptr) return gpu_.Pack(*table_, buffer, 1, stream_);
  const int64_t element = DTypeSize(dtype);
  for (const Segment& segment : segments) {
    std::byte* const to = static_cast<std::byte*>(buffer) + segment.first * element;
    RETURN_IF_ERROR(gpu_.Copy(to, segment.data, segment.count * element, stream_));
  }
  return absl::OkStatus();
}

absl::Status TensorPacker::Unpack(const std::vector<Segment>& segments, const void* buffer, DType dtype) {
  if (segments.empty()) return absl::OkStatus();
  if (table_ != nullptr) return gpu_.Unpack(*table_, buffer, 1, stream_);
  const int64_t element = DTypeSize(dtype);
  for (const Segment& segment : segments) {
    const std::byte* const from = static_cast<const std::byte*>(buffer) + segment.first * element;
    RETURN_IF_ERROR(gpu_.Copy(segment.data, from, segment.count * element, stream_));
  }
  return absl::OkStatus();
}

}  // namespace gyre::device
