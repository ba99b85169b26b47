#include "fusion/gradients_on_gpu.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/gpu_wait.h"

namespace gyre::fusion {

namespace {

using device::Gpu;
using device::Segment;

constexpr int kTriesAgain = 2;  // to begin a capture

constexpr int64_t kNumberBytes = static_cast<int64_t>(Gpu::kSquareParts * sizeof(double));

}  // namespace

absl::StatusOr<std::unique_ptr<GradientsOnGpu>> GradientsOnGpu::Create(std::shared_ptr<Gpu> gpu,
                                                                       std::shared_ptr<device::GpuAllocator> memory,
                                                                       std::vector<TensorInfo> tensors,
                                                                       const Layout& layout, std::vector<void*> streams,
                                                                       int accumulate) {
  ASSIGN_OR_RETURN(void* const homes, memory->Allocate(layout.bytes));
  std::unique_ptr<GradientsOnGpu> gradients(new GradientsOnGpu(std::move(gpu), std::move(memory), std::move(tensors),
                                                               layout, static_cast<std::byte*>(homes),
                                                               std::move(streams), accumulate));
  RETURN_IF_ERROR(gradients->Open());
  return gradients;
}

GradientsOnGpu::GradientsOnGpu(std::shared_ptr<Gpu> gpu, std::shared_ptr<device::GpuAllocator> from,
                               std::vector<TensorInfo> tensors, const Layout& layout, std::byte* memory,
                               std::vector<void*> streams, int accumulate)
    : Gradients(std::move(tensors), layout, memory, INT64_MAX, accumulate, 0),
      gpu_(std::move(gpu)),
      from_(std::move(from)),
      streams_(std::move(streams)),
      packings_(streams_.size()) {}

absl::Status GradientsOnGpu::Open() {
  if (accumulate() > 1) {
    ASSIGN_OR_RETURN(void* const sums, gpu_->Allocate(layout().bytes));
    sums_ = static_cast<std::byte*>(sums);
  }
  ASSIGN_OR_RETURN(void* const squares, gpu_->Allocate(kNumberBytes + static_cast<int64_t>(sizeof(uint64_t))));
  squares_ = static_cast<double*>(squares);
  ASSIGN_OR_RETURN(stream_, gpu_->CreateStream());
  ASSIGN_OR_RETURN(done_, gpu_->CreateEvent());
  for (size_t i = 0; i < tensors().size(); ++i) {
    ASSIGN_OR_RETURN(given_.emplace_back().ready, gpu_->CreateEvent());
  }
  RETURN_IF_ERROR(gpu_->Zero(memory(), layout().bytes, stream_));
  home_streams_ = streams_;
  std::ranges::sort(home_streams_);
  home_streams_.erase(std::ranges::unique(home_streams_).begin(), home_streams_.end());
  step_streams_ = home_streams_;
  return Finish();
}

// Gpu::Free waits for work that uses the memory: it stays the process's where that does not end.
GradientsOnGpu::~GradientsOnGpu() {
  const bool rests = done_ == nullptr || AwaitOwn(std::chrono::steady_clock::now() + device::kLongestRest).ok();
  packings_.clear();
  if (rests) {
    from_->Free(memory());
    if (sums_ != nullptr) gpu_->Free(sums_);
    if (squares_ != nullptr) gpu_->Free(squares_);
  }
  for (const Given& given : given_) {
    if (given.ready != nullptr) gpu_->DestroyEvent(given.ready);
  }
  if (done_ != nullptr) gpu_->DestroyEvent(done_);
  for (Gpu::Stream stream : {captured_, stream_}) {
    if (stream != nullptr) gpu_->DestroyStream(stream);
  }
}

TensorView GradientsOnGpu::home(int tensor) const {
  TensorView view = Gradients::home(tensor);
  view.device = {.gpu = gpu_->ordinal(), .stream = streams_[static_cast<size_t>(tensor)]};
  return view;
}

void GradientsOnGpu::Note(const absl::Status& status) {
  if (status.ok()) return;
  std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = status;
}

// --- Giving ---

absl::Status GradientsOnGpu::Check(int tensor, const TensorView& view) const {
  const TensorInfo& info = tensors()[static_cast<size_t>(tensor)];
  if (view.device.gpu != gpu_->ordinal()) {
    return absl::InvalidArgumentError(
        absl::StrCat("it was registered on GPU ", gpu_->ordinal(), "; given was memory ",
                     view.device.on_gpu() ? absl::StrCat("of GPU ", view.device.gpu) : std::string("of the host")));
  }
  if (view.dtype == info.dtype) return absl::OkStatus();
  if (device::Convertible(view.dtype) && device::Convertible(info.dtype) && accumulate() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(DTypeName(view.dtype)), " is not converted to ",
                                                 ToAbsl(DTypeName(info.dtype)),
                                                 " on a GPU where one of them is f64 or gradients are accumulated"));
}

// From here on the tensor is there once what is queued on `stream` has been done. What is reduced is marked with its
// bucket; what is only added up, at once, for the next one, on whatever stream that comes. (What is captured would not
// be done.)
absl::Status GradientsOnGpu::GivenOn(int tensor, void* stream) {
  Given& given = given_[static_cast<size_t>(tensor)];
  {
    std::lock_guard lock(mutex_);
    if (std::ranges::find(step_streams_, stream) == step_streams_.end()) step_streams_.push_back(stream);
  }
  given.stream = stream;
  given.mark = tensor;
  given.unmarked = !only_adds();
  return given.unmarked ? gpu_->CheckNotCaptured(stream) : gpu_->Record(given.ready, stream);
}

// The first on each stream stands for those behind it.
void GradientsOnGpu::Mark(std::span<const int> tensors) {
  const auto given = [this](int tensor) -> Given& { return given_[static_cast<size_t>(tensor)]; };
  for (const int tensor : tensors) {
    if (!given(tensor).unmarked) continue;
    const int first = *std::ranges::find_if(
        tensors, [&](int other) { return given(other).unmarked && given(other).stream == given(tensor).stream; });
    given(tensor).mark = first;
    if (first == tensor) Note(gpu_->Record(given(tensor).ready, given(tensor).stream));
  }
  for (const int tensor : tensors) given(tensor).unmarked = false;
}

// What is at `from` goes into the tensor's sum; with the last, the sum goes home, where the results of the step before
// may yet be on their way.
absl::Status GradientsOnGpu::Add(int tensor, const TensorView& from, void* stream) {
  if (from.count == 0) return absl::OkStatus();
  RETURN_IF_ERROR(gpu_->Wait(stream, given_[static_cast<size_t>(tensor)].ready));  // the one before, elsewhere
  RETURN_IF_ERROR(gpu_->Wait(stream, done_));
  void* const into = only_adds() ? sum(tensor) : home(tensor).data;
  if (only_adds() && given() == 0) return gpu_->Copy(into, from.data, from.bytes(), stream);
  const std::array<const void*, 2> sources = {only_adds() ? into : from.data, only_adds() ? from.data : sum(tensor)};
  const std::array<void*, 1> destinations = {into};
  return gpu_->Reduce({.dtype = from.dtype}, sources, destinations, from.count, stream);
}

void GradientsOnGpu::Give(int tensor) {
  SetGiven(tensor, {});
  void* const stream = streams_[static_cast<size_t>(tensor)];
  if (accumulate() > 1) Note(Add(tensor, home(tensor), stream));
  Note(GivenOn(tensor, stream));
}

// What is given elsewhere goes home as well, where the program may yet have to read the result before: on the stream of
// the home, which need not be the one that it gives on.
absl::Status GradientsOnGpu::WaitForHome(int tensor, void* stream) {
  const auto index = static_cast<size_t>(tensor);
  if (stream == streams_[index]) return absl::OkStatus();
  RETURN_IF_ERROR(gpu_->Wait(stream, given_[index].ready));
  RETURN_IF_ERROR(gpu_->Record(given_[index].ready, streams_[index]));
  return gpu_->Wait(stream, given_[index].ready);
}

void GradientsOnGpu::Give(int tensor, TensorView view) {
  SetGiven(tensor, view);
  Note(WaitForHome(tensor, view.device.stream));
  if (accumulate() > 1) Note(Add(tensor, view, view.device.stream));
  Note(GivenOn(tensor, view.device.stream));
}

void GradientsOnGpu::GiveZeros(int tensor) {
  Note(gpu_->Zero(home(tensor).data, home(tensor).bytes(), streams_[static_cast<size_t>(tensor)]));
  Give(tensor);
}

// --- Into the buffer and back ---

TensorView GradientsOnGpu::BufferOf(const Part& part) const {
  return {memory() + part.begin, part.count, part.dtype, own()};
}

// A gradient that could not be given must not be reduced: the others are to learn of it.
absl::Status GradientsOnGpu::Prepare(const Part& part) {
  {
    std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(failure_);
  }
  RETURN_IF_ERROR(AwaitGiven(part));
  Packing& packing = PackingOf(part);
  RETURN_IF_ERROR(packing.Follow(SegmentsOf(part)));
  return packing.in_graph() || accumulate() > 1 ? absl::OkStatus() : packing.Gather();
}

absl::Status GradientsOnGpu::AwaitGiven(const Part& part) {
  marks_.clear();
  for (const int tensor : part.tensors) {
    const int mark = given_[static_cast<size_t>(tensor)].mark;
    if (std::ranges::find(marks_, mark) != marks_.end()) continue;
    marks_.push_back(mark);
    RETURN_IF_ERROR(gpu_->Wait(stream_, given_[static_cast<size_t>(mark)].ready));
  }
  return absl::OkStatus();
}

Packing& GradientsOnGpu::PackingOf(const Part& part) {
  std::unique_ptr<Packing>& packing = packings_[static_cast<size_t>(part.tensors[0])];
  if (packing == nullptr) packing = std::make_unique<Packing>(*gpu_, stream_, memory() + part.begin, part.dtype);
  return *packing;
}

// Of the tensors that were not given at home.
std::vector<Segment> GradientsOnGpu::SegmentsOf(const Part& part) const {
  std::vector<Segment> segments;
  for (const int tensor : part.tensors) {
    const auto index = static_cast<size_t>(tensor);
    const TensorView& view = given_views()[index];
    if (view.data == nullptr) continue;
    segments.push_back({.data = view.data,
                        .count = view.count,
                        .first = (layout().begins[index] - part.begin) / DTypeSize(part.dtype),
                        .dtype = view.dtype});
  }
  return segments;
}

void GradientsOnGpu::Deliver(const Part& part) {
  if (Packing& packing = PackingOf(part); !packing.in_graph()) Note(packing.Scatter());
}

// --- Graphs ---

std::shared_ptr<device::GpuGraph> GradientsOnGpu::GraphOf(const Part& part) const {
  const auto& packing = packings_[static_cast<size_t>(part.tensors[0])];
  return packing != nullptr ? packing->graph() : nullptr;
}

absl::Status GradientsOnGpu::TryCapture(const Part& part) {
  if (captured_ == nullptr) {
    ASSIGN_OR_RETURN(captured_, gpu_->CreateStream());
  }
  return PackingOf(part).TryCapture(captured_, accumulate() == 1);
}

// What was captured for a trial can be captured: if it cannot now, another thread has waited for the whole GPU, which
// spoils a capture, and has done so the next moment.
absl::StatusOr<GradientsOnGpu::Capture> GradientsOnGpu::BeginCapture(const Part& part) {
  TensorView buffer = BufferOf(part);
  buffer.device.stream = captured_;
  auto graph = PackingOf(part).BeginCapture(captured_, accumulate() == 1);
  for (int again = 0; !graph.ok() && again < kTriesAgain; ++again) {
    graph = PackingOf(part).BeginCapture(captured_, accumulate() == 1);
  }
  RETURN_IF_ERROR(graph.status());
  return Capture{buffer, *std::move(graph)};
}

absl::Status GradientsOnGpu::EndCapture(const Part& part) {
  return PackingOf(part).EndCapture();
}

void GradientsOnGpu::DropGraphs() {
  for (const auto& packing : packings_) {
    if (packing != nullptr) packing->DropGraph();
  }
  if (captured_ != nullptr) Note(ComeAfterCaptured());
}

absl::Status GradientsOnGpu::ComeAfterCaptured() {
  RETURN_IF_ERROR(gpu_->Record(done_, captured_));
  RETURN_IF_ERROR(gpu_->Wait(stream_, done_));
  return gpu_->Record(done_, stream_);
}

// --- After a step ---

absl::Status GradientsOnGpu::AwaitOwn(TimePoint deadline) {
  RETURN_IF_ERROR(gpu_->Record(done_, stream_));
  ASSIGN_OR_RETURN(const bool done, device::AwaitEvent(*gpu_, done_, deadline));
  if (done) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("GPU ", gpu_->ordinal(), " had not finished what was queued for the gradients' norm"));
}

absl::StatusOr<GradientsOnGpu::Facts> GradientsOnGpu::Look(std::span<const Part> parts, TimePoint deadline) {
  RETURN_IF_ERROR(gpu_->Zero(squares_, kNumberBytes, stream_));
  for (const Part& part : parts) RETURN_IF_ERROR(gpu_->AddSquares(BufferOf(part), squares_, nullptr, stream_));
  RETURN_IF_ERROR(AwaitOwn(deadline));  // what is copied to memory that is not pinned may block
  std::array<double, Gpu::kSquareParts> squares{};
  RETURN_IF_ERROR(gpu_->Copy(squares.data(), squares_, kNumberBytes, stream_));
  RETURN_IF_ERROR(gpu_->Synchronize(stream_));
  Facts facts;
  for (const double part : squares) facts.squares += part;
  if (std::isfinite(facts.squares)) return facts;
  ASSIGN_OR_RETURN(const uint64_t found, CountNonFinite(parts, deadline));  // or squares were too large for a double
  facts.finite = found == 0;
  return facts;
}

absl::StatusOr<uint64_t> GradientsOnGpu::CountNonFinite(std::span<const Part> parts, TimePoint deadline) {
  auto* const counter = reinterpret_cast<uint64_t*>(squares_ + Gpu::kSquareParts);
  RETURN_IF_ERROR(gpu_->Zero(counter, sizeof *counter, stream_));
  for (const Part& part : parts) RETURN_IF_ERROR(gpu_->CountNonFinite(BufferOf(part), counter, stream_));
  RETURN_IF_ERROR(AwaitOwn(deadline));
  uint64_t found = 0;
  RETURN_IF_ERROR(gpu_->Copy(&found, counter, sizeof found, stream_));
  RETURN_IF_ERROR(gpu_->Synchronize(stream_));
  return found;
}

absl::Status GradientsOnGpu::Scale(std::span<const Part> parts, double scale) {
  for (const Part& part : parts) {
    const std::array<void*, 1> buffer = {BufferOf(part).data};
    const std::array<const void*, 1> source = {buffer[0]};
    RETURN_IF_ERROR(gpu_->Reduce({.dtype = part.dtype, .scale_result = scale}, source, buffer, part.count, stream_));
    RETURN_IF_ERROR(PackingOf(part).Scatter());
  }
  return absl::OkStatus();
}

// Homes are written in the next step on the streams that gradients were registered on, whatever they were given on in
// this one. Where one stream cannot wait, the others do all the same.
absl::Status GradientsOnGpu::Finish() {
  RETURN_IF_ERROR(gpu_->Record(done_, stream_));
  std::lock_guard lock(mutex_);
  absl::Status all = failure_;
  for (void* const stream : step_streams_) {
    absl::Status waits = gpu_->Wait(stream, done_);
    if (all.ok()) all = std::move(waits);
  }
  if (all.ok()) step_streams_ = home_streams_;
  return all;
}

}  // namespace gyre::fusion
