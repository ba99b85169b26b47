// The fake GPU's graphs: which streams are captured, and what goes wrong with that.
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/fake_gpu.h"
#include "gtest/gtest.h"

namespace gyre::device {

void FakeGpu::FailCaptures(absl::Status begin, absl::Status end, int times, int after) {
  std::lock_guard lock(mutex_);
  failing_begins_ = begin.ok() ? 0 : times;
  failing_ends_ = end.ok() ? 0 : times;
  begins_before_failure_ = ends_before_failure_ = after;
  begin_failure_ = std::move(begin);
  end_failure_ = std::move(end);
}

void FakeGpu::FailCaptured(int after, absl::Status status) {
  std::lock_guard lock(mutex_);
  until_captured_fails_ = after;
  captured_failure_ = std::move(status);
}

absl::Status FakeGpu::NextCaptured() {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  return until_captured_fails_-- == 0 ? captured_failure_ : absl::OkStatus();
}

int FakeGpu::launched() const {
  std::lock_guard lock(mutex_);
  return launched_;
}

absl::Status FakeGpu::SynchronizeAll() {
  std::vector<std::shared_ptr<FakeGraph>> captured;
  {
    std::unique_lock lock(mutex_);
    for (const auto& [stream, graph] : queues_->graphs) {
      if (own_.contains(stream)) captured.push_back(graph.lock());
    }
    if (captured.empty()) Await(lock, [this] { return Busy(); });
  }
  for (const auto& graph : captured) {
    if (graph != nullptr) graph->Spoil("somebody waited for the GPU");
  }
  return captured.empty() ? absl::OkStatus() : absl::FailedPreconditionError("a stream is being captured");
}

absl::StatusOr<std::shared_ptr<GpuGraph>> FakeGpu::Capture(Stream stream) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  if (failing_begins_ > 0 && begins_before_failure_-- <= 0) {
    --failing_begins_;
    return begin_failure_;
  }
  EXPECT_TRUE(queues_->streams.contains(stream) && queues_->streams[stream].empty() &&
              !queues_->graphs.contains(stream));
  auto graph = std::make_shared<FakeGraph>(*this, stream);
  queues_->graphs[stream] = graph;
  return graph;
}

std::shared_ptr<FakeGraph> FakeGpu::CapturedInto(Stream stream) const {
  std::lock_guard lock(mutex_);
  const auto found = queues_->graphs.find(stream);
  return found == queues_->graphs.end() ? nullptr : found->second.lock();
}

absl::Status FakeGpu::EndCapture(Stream stream) {
  std::lock_guard lock(mutex_);
  queues_->graphs.erase(stream);
  if (failing_ends_ == 0 || ends_before_failure_-- > 0) return absl::OkStatus();
  --failing_ends_;
  return end_failure_;
}

absl::Status FakeGpu::BeginLaunch(Stream stream) {
  std::lock_guard lock(mutex_);
  EXPECT_FALSE(queues_->graphs.contains(stream)) << "a graph is launched into another";
  ++launched_;
  return failure_;
}

}  // namespace gyre::device
