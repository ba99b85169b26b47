#include "fusion/packing.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/status.h"

namespace gyre::fusion {

namespace {

using device::Gpu;
using device::Segment;

bool Same(const std::vector<Segment>& ones, const std::vector<Segment>& others) {
  return std::ranges::equal(ones, others, [](const Segment& one, const Segment& other) {
    return one.data == other.data && one.count == other.count && one.first == other.first && one.dtype == other.dtype;
  });
}

}  // namespace

absl::Status Packing::Follow(std::vector<Segment> segments) {
  segments_ = std::move(segments);
  RETURN_IF_ERROR(Choose());
  const Gpu::Table* const table = segments_.empty() ? nullptr : table_.get();
  in_graph_ = packs_ && table != nullptr;
  if (!packs_ || graphs_table_ == table) return absl::OkStatus();
  RETURN_IF_ERROR(graph_->Update(table));
  graphs_table_ = table;
  return absl::OkStatus();
}

// A table is made for what was given so twice, or is to be converted; and kept while nothing is given.
absl::Status Packing::Choose() {
  if (segments_.empty()) return absl::OkStatus();
  const bool again = Same(known_, segments_);
  if (again && table_ != nullptr) return absl::OkStatus();
  known_ = segments_;
  if (again || std::ranges::any_of(known_, [this](const Segment& segment) { return segment.dtype != dtype_; })) {
    return MakeTable();
  }
  DropTable();
  return absl::OkStatus();
}

absl::Status Packing::MakeTable() {
  DropTable();
  ASSIGN_OR_RETURN(device::PackTable table, device::MakePackTable(known_, dtype_));
  ASSIGN_OR_RETURN(table_, gpu_.Upload(std::move(table), stream_));
  return absl::OkStatus();
}

void Packing::DropTable() {
  table_.reset();
  graphs_table_.reset();
}

template <typename Copy>
absl::Status Packing::CopyEach(const Copy& copy) {
  const int64_t element = DTypeSize(dtype_);
  for (const Segment& segment : segments_) {
    RETURN_IF_ERROR(
        copy(static_cast<std::byte*>(buffer_) + segment.first * element, segment.data, segment.count * element));
  }
  return absl::OkStatus();
}

absl::Status Packing::Gather() {
  if (segments_.empty()) return absl::OkStatus();
  if (table_ != nullptr) return gpu_.Pack(*table_, buffer_, 1, stream_);
  return CopyEach([this](void* home, void* tensor, int64_t bytes) { return gpu_.Copy(home, tensor, bytes, stream_); });
}

absl::Status Packing::Scatter() {
  if (segments_.empty()) return absl::OkStatus();
  if (table_ != nullptr) return gpu_.Unpack(*table_, buffer_, 1, stream_);
  return CopyEach([this](void* home, void* tensor, int64_t bytes) { return gpu_.Copy(tensor, home, bytes, stream_); });
}

absl::StatusOr<std::shared_ptr<device::GpuGraph>> Packing::BeginCapture(Gpu::Stream stream, bool gathers) {
  DropGraph();
  if (!segments_.empty() && table_ == nullptr) RETURN_IF_ERROR(MakeTable());
  ASSIGN_OR_RETURN(capturing_, gpu_.Capture(stream));
  captured_ = stream;
  if (!segments_.empty() && gathers) RETURN_IF_ERROR(gpu_.Pack(*table_, buffer_, 1, stream));
  return capturing_;
}

absl::Status Packing::EndCapture() {
  const bool packs = !segments_.empty();
  if (packs) RETURN_IF_ERROR(gpu_.Unpack(*table_, buffer_, 1, captured_));
  RETURN_IF_ERROR(capturing_->End());
  graph_ = std::move(capturing_);
  packs_ = packs;
  graphs_table_ = table_.get();
  return absl::OkStatus();
}

void Packing::DropGraph() {
  capturing_.reset();
  graph_.reset();
  packs_ = in_graph_ = false;
}

}  // namespace gyre::fusion
