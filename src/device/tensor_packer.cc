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

absl::Status TensorPacker::Choose(std::vector<Segment> segments, DType dtype) {
  const bool again = dtype == dtype_ && Same(segments_, segments);
  if (again && table_ != nullptr) return absl::OkStatus();
  table_.reset();
  segments_ = std::move(segments);
  dtype_ = dtype;
  const bool converts = std::ranges::any_of(segments_, [dtype](const Segment& each) { return each.dtype != dtype; });
  return (again || converts) && !segments_.empty() ? MakeTable() : absl::OkStatus();
}

absl::Status TensorPacker::MakeTable() {
  ASSIGN_OR_RETURN(PackTable table, MakePackTable(segments_, dtype_));
  ASSIGN_OR_RETURN(table_, gpu_.Upload(std::move(table), stream_));
  return absl::OkStatus();
}

absl::Status TensorPacker::Pack(void* buffer) {
  if (table_ != nullptr) return gpu_.Pack(*table_, buffer, 1, stream_);
  const int64_t element = DTypeSize(dtype_);
  for (const Segment& segment : segments_) {
    std::byte* const to = static_cast<std::byte*>(buffer) + segment.first * element;
    RETURN_IF_ERROR(gpu_.Copy(to, segment.data, segment.count * element, stream_));
  }
  return absl::OkStatus();
}

absl::Status TensorPacker::Unpack(const void* buffer) {
  if (table_ != nullptr) return gpu_.Unpack(*table_, buffer, 1, stream_);
  const int64_t element = DTypeSize(dtype_);
  for (const Segment& segment : segments_) {
    const std::byte* const from = static_cast<const std::byte*>(buffer) + segment.first * element;
    RETURN_IF_ERROR(gpu_.Copy(segment.data, from, segment.count * element, stream_));
  }
  return absl::OkStatus();
}

}  // namespace gyre::device
