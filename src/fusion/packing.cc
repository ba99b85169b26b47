#include "fusion/packing.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/status.h"

namespace gyre::fusion {

using device::Gpu;
using device::Segment;

// What goes by a table goes by the same one again after steps in which nothing was given.
absl::Status Packing::Follow(std::vector<Segment> segments) {
  given_ = !segments.empty();
  if (given_) RETURN_IF_ERROR(packer_.Choose(std::move(segments), dtype_));
  const std::shared_ptr<const Gpu::Table> table = given_ ? packer_.table() : nullptr;
  in_graph_ = packs_ && table != nullptr;
  if (!packs_ || graphs_table_ == table) return absl::OkStatus();
  const absl::Status updated = graph_->Update(table.get());
  if (updated.ok()) graphs_table_ = table;
  // It was discarded: what it is launched through knows why.
  return absl::IsFailedPrecondition(updated) ? absl::OkStatus() : updated;
}

absl::Status Packing::Gather() {
  return given_ ? packer_.Pack(buffer_) : absl::OkStatus();
}

absl::Status Packing::Scatter() {
  return given_ ? packer_.Unpack(buffer_) : absl::OkStatus();
}

absl::Status Packing::TryCapture(Gpu::Stream stream, bool gathers) {
  const absl::Cleanup drop = [this] { DropGraph(); };
  if (given_ && packer_.table() == nullptr) RETURN_IF_ERROR(packer_.MakeTable());
  RETURN_IF_ERROR(BeginCapture(stream, gathers).status());
  return EndCapture();
}

absl::StatusOr<std::shared_ptr<device::GpuGraph>> Packing::BeginCapture(Gpu::Stream stream, bool gathers) {
  DropGraph();
  ASSIGN_OR_RETURN(capturing_, gpu_.Capture(stream));
  captured_ = stream;
  if (given_ && gathers) RETURN_IF_ERROR(gpu_.Pack(*packer_.table(), buffer_, 1, stream));
  return capturing_;
}

absl::Status Packing::EndCapture() {
  if (given_) RETURN_IF_ERROR(gpu_.Unpack(*packer_.table(), buffer_, 1, captured_));
  RETURN_IF_ERROR(capturing_->End());
  graph_ = std::move(capturing_);
  packs_ = given_;
  graphs_table_ = given_ ? packer_.table() : nullptr;
  return absl::OkStatus();
}

void Packing::DropGraph() {
  if (capturing_ != nullptr) std::exchange(capturing_, nullptr)->Discard();
  graph_.reset();
  graphs_table_.reset();
  packs_ = in_graph_ = false;
}

}  // namespace gyre::fusion
