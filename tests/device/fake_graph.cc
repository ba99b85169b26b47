#include "device/fake_graph.h"

#include "absl/strings/str_cat.h"
#include "device/fake_gpu.h"
#include "gtest/gtest.h"
#include "gyre/status_macros.h"

namespace gyre::device {

namespace {

absl::Status NotThere() {
  return absl::FailedPreconditionError("the graph's capture has not ended well, or it was discarded");
}

}  // namespace

FakeTable::~FakeTable() {
  gpu.Retire(std::move(table), used_on);
}

FakeGraph::~FakeGraph() {
  std::lock_guard lock(mutex_);
  DiscardLocked();
}

absl::Status FakeGraph::End() {
  std::lock_guard lock(mutex_);
  if (stream_ == nullptr) return NotThere();
  absl::Status status = gpu_.EndCapture(stream_);
  stream_ = nullptr;
  if (!spoilt_.empty()) status = absl::InternalError(absl::StrCat("the capture was spoilt: ", spoilt_));
  launchable_ = status.ok();
  if (!launchable_) DiscardLocked();
  return status;
}

absl::Status FakeGraph::Launch(Gpu::Stream stream) {
  std::lock_guard lock(mutex_);
  if (!launchable_) return NotThere();
  RETURN_IF_ERROR(gpu_.BeginLaunch(stream));
  if (last_ != nullptr) RETURN_IF_ERROR(gpu_.QueueWait(std::static_pointer_cast<FakeGpu::Gate>(last_), stream));
  for (const Node& node : nodes_) RETURN_IF_ERROR(node(stream));
  auto gate = std::make_shared<FakeGpu::Gate>();
  last_ = gate;
  return gpu_.QueueOpen(std::move(gate), stream);
}

absl::Status FakeGraph::Update(const Gpu::Table* table) {
  std::lock_guard lock(mutex_);
  if (!launchable_) return NotThere();
  packs_ = table != nullptr;
  if (table == nullptr) return absl::OkStatus();
  for (auto& each : tables_) each = static_cast<const FakeTable*>(table)->table;
  return absl::OkStatus();
}

void FakeGraph::Discard() {
  std::lock_guard lock(mutex_);
  DiscardLocked();
}

void FakeGraph::DiscardLocked() {
  if (stream_ != nullptr) (void)gpu_.EndCapture(stream_);
  stream_ = nullptr;
  launchable_ = false;
  nodes_.clear();
  tables_.clear();
}

absl::Status FakeGraph::Add(Node node) {
  std::lock_guard lock(mutex_);
  if (stream_ == nullptr) return NotThere();
  nodes_.push_back(std::move(node));
  return absl::OkStatus();
}

absl::Status FakeGraph::AddPack(const Gpu::Table& table, void* buffer, double scale, bool unpacks) {
  std::lock_guard lock(mutex_);
  if (stream_ == nullptr) return NotThere();
  nodes_.emplace_back([this, number = tables_.size(), buffer, scale, unpacks](Gpu::Stream stream) {
    return LaunchPack(number, buffer, scale, unpacks, stream);
  });
  tables_.push_back(static_cast<const FakeTable&>(table).table);
  return absl::OkStatus();
}

absl::Status FakeGraph::LaunchPack(size_t number, void* buffer, double scale, bool unpacks, Gpu::Stream stream) {
  if (!packs_) return absl::OkStatus();
  const std::shared_ptr<PackTable> table = tables_[number].lock();
  if (table != nullptr) return gpu_.QueuePack(*table, buffer, scale, unpacks, stream);
  ADD_FAILURE() << "a graph is launched that packs by a table that is gone";
  return absl::OkStatus();
}

void FakeGraph::Spoil(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (stream_ != nullptr) spoilt_ = why;
}

}  // namespace gyre::device
