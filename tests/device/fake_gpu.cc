#include "device/fake_gpu.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "gyre/status_macros.h"

namespace gyre::device {

FakeGpu::~FakeGpu() {
  std::lock_guard lock(mutex_);
  for (const auto& [event, gate] : events_) delete static_cast<char*>(event);
  for (Stream stream : own_) {
    queues_->streams.erase(stream);
    delete static_cast<char*>(stream);
  }
  for (void* memory : allocations_) ::operator delete (memory, std::align_val_t{256});
}

std::unique_ptr<FakeGpu> FakeGpu::Beside() const {
  return std::unique_ptr<FakeGpu>(new FakeGpu(queues_, nullptr));
}

std::unique_ptr<FakeGpu> FakeGpu::Slice() const {
  return std::unique_ptr<FakeGpu>(new FakeGpu(queues_, this));
}

void FakeGpu::Stall(bool stalled) {
  std::lock_guard lock(mutex_);
  queues_->stalled = stalled;
}

void FakeGpu::Hold(Stream stream, bool held) {
  std::lock_guard lock(mutex_);
  if (held) {
    queues_->held.insert(stream);
  } else {
    queues_->held.erase(stream);
  }
}

void FakeGpu::LetProgramCapture(Stream stream) {
  std::lock_guard lock(mutex_);
  queues_->programs.insert(stream);
}

int FakeGpu::queued() const {
  std::lock_guard lock(mutex_);
  return queued_;
}

int FakeGpu::blocked() const {
  std::lock_guard lock(mutex_);
  return blocked_;
}

void FakeGpu::FailSquares(absl::Status status) {
  std::lock_guard lock(mutex_);
  squares_failure_ = std::move(status);
}

void FakeGpu::FailAllocate(absl::Status status, int before) {
  std::lock_guard lock(mutex_);
  allocate_failure_ = std::move(status);
  allocations_before_failure_ = before;
}

void FakeGpu::FailPin(absl::Status status) {
  std::lock_guard lock(mutex_);
  pin_failure_ = std::move(status);
}

void FakeGpu::Fail(absl::Status status) {
  std::lock_guard lock(mutex_);
  failure_ = std::move(status);
}

int64_t FakeGpu::pinned() const {
  std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [memory, size] : pinned_) bytes += size;
  return bytes;
}

size_t FakeGpu::allocations() const {
  std::lock_guard lock(mutex_);
  return allocations_.size();
}

std::string FakeGpu::uuid() const {
  std::string uuid(16, 'f');  // of this object: those who share a GPU share the object
  const FakeGpu* const self = this;
  std::memcpy(uuid.data(), &self, sizeof self);
  return uuid;
}

// --- Sharing ---

GpuSharing::Handle FakeSharing::HandleOf(void* thing) {
  Handle handle = {};
  std::memcpy(handle.data(), &thing, sizeof thing);
  return handle;
}

void FakeSharing::Refuse(absl::Status status) {
  std::lock_guard lock(mutex_);
  refusal_ = std::move(status);
}

absl::StatusOr<void*> FakeSharing::Open(const Handle& handle) {
  void* thing = nullptr;
  std::memcpy(&thing, handle.data(), sizeof thing);
  std::lock_guard lock(mutex_);
  if (!refusal_.ok()) return refusal_;
  ++open_[thing];
  return thing;
}

void FakeSharing::Close(void* opened) {
  std::lock_guard lock(mutex_);
  const auto found = open_.find(opened);
  if (found == open_.end()) {
    ADD_FAILURE() << "closed, but not open";
  } else if (--found->second == 0) {
    open_.erase(found);
  }
}

int FakeSharing::open() const {
  std::lock_guard lock(mutex_);
  int all = 0;
  for (const auto& [thing, times] : open_) all += times;
  return all;
}

bool FakeSharing::IsOpen(void* thing) const {
  std::lock_guard lock(mutex_);
  return open_.contains(thing);
}

// --- Queues ---

absl::Status FakeGpu::Queue(Stream stream, Item item) {
  if (const auto graph = CapturedInto(stream); graph != nullptr) {
    RETURN_IF_ERROR(NextCaptured());
    return graph->Add([this, item = std::move(item)](Stream launched_on) { return QueueNow(launched_on, item); });
  }
  {
    std::lock_guard lock(mutex_);
    ++queued_;
  }
  return QueueNow(stream, std::move(item));
}

absl::Status FakeGpu::QueueNow(Stream stream, Item item) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  EXPECT_FALSE(queues_->programs.contains(stream)) << "something is queued on a stream that the program captures";
  queues_->waited.erase(std::this_thread::get_id());
  queues_->streams[stream].push_back(std::move(item));
  if (queues_->random() % 4 == 0) Step();
  return absl::OkStatus();
}

// Does what is first on one of the streams that can go on. False: none can.
bool FakeGpu::Step() {
  if (queues_->stalled) return false;
  std::vector<std::deque<Item>*> able;
  for (auto& [stream, items] : queues_->streams) {
    if (items.empty() || queues_->held.contains(stream)) continue;
    if (items.front().after == nullptr || items.front().after->open) able.push_back(&items);
  }
  if (able.empty()) return false;
  std::deque<Item>& items = *able[queues_->random() % able.size()];
  const Item item = std::move(items.front());
  items.pop_front();
  if (item.work) item.work();
  return true;
}

bool FakeGpu::Busy() const {
  return std::ranges::any_of(queues_->streams, [this](const auto& stream) {
    return !stream.second.empty() && (stream.first == nullptr || own_.contains(stream.first));
  });
}

// Until it is no longer busy, as far as that goes; where it waits for other GPUs, for them as well.
void FakeGpu::Await(std::unique_lock<std::mutex>& lock, const std::function<bool()>& busy) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (busy()) {
    if (Step()) continue;
    const bool others = queues_.use_count() > 1 && !queues_->stalled && queues_->held.empty();
    if (!others || std::chrono::steady_clock::now() > end) break;
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  if (busy()) ++blocked_;
}

absl::StatusOr<Gpu::Stream> FakeGpu::CreateStream() {
  std::lock_guard lock(mutex_);
  Stream const stream = new char;
  own_.insert(stream);
  queues_->streams[stream];
  return stream;
}

void FakeGpu::DestroyStream(Stream stream) {
  EXPECT_EQ(CapturedInto(stream), nullptr) << "a stream is destroyed while it is captured";
  std::lock_guard lock(mutex_);
  queues_->programs.erase(stream);
  while (!queues_->streams[stream].empty() && Step()) {
  }
  if (!queues_->streams[stream].empty()) return;  // goes with this, for what is queued is done all the same
  queues_->streams.erase(stream);
  own_.erase(stream);
  delete static_cast<char*>(stream);
}

absl::Status FakeGpu::Synchronize(Stream stream) {
  if (const auto graph = CapturedInto(stream); graph != nullptr) {
    graph->Spoil("somebody waited for the stream");
    return absl::FailedPreconditionError("the stream is being captured");
  }
  std::unique_lock lock(mutex_);
  Await(lock, [&] { return !queues_->streams[stream].empty(); });
  return failure_;
}

absl::StatusOr<Gpu::Event> FakeGpu::CreateEvent() {
  std::lock_guard lock(mutex_);
  Event const event = new char;
  events_[event] = nullptr;
  return event;
}

void FakeGpu::DestroyEvent(Event event) {
  EXPECT_FALSE(sharing_.IsOpen(event)) << "an event is destroyed that others have open";
  std::lock_guard lock(mutex_);
  events_.erase(event);
  delete static_cast<char*>(event);
}

absl::Status FakeGpu::CheckNotCaptured(Stream stream) {
  const bool ours = CapturedInto(stream) != nullptr;
  std::lock_guard lock(mutex_);
  if (!ours && !queues_->programs.contains(stream)) return absl::OkStatus();
  return absl::FailedPreconditionError("the stream is being captured");
}

// One that fails leaves the event as it was, as CUDA's does.
absl::Status FakeGpu::Record(Event event, Stream stream) {
  RETURN_IF_ERROR(CheckNotCaptured(stream));
  auto gate = std::make_shared<Gate>();
  RETURN_IF_ERROR(Queue(stream, {.work = [gate] { gate->open = true; }, .after = nullptr}));
  std::lock_guard lock(mutex_);
  events_[event] = std::move(gate);
  return absl::OkStatus();
}

absl::Status FakeGpu::Wait(Stream stream, Event event) {
  RETURN_IF_ERROR(CheckNotCaptured(stream));
  std::shared_ptr<Gate> gate;
  {
    std::lock_guard lock(mutex_);
    gate = events_[event];
  }
  if (gate == nullptr) return absl::OkStatus();
  return Queue(stream, {.work = nullptr, .after = std::move(gate)});
}

absl::StatusOr<bool> FakeGpu::Done(Event event) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  LookLocked();
  const auto& gate = events_[event];
  return gate == nullptr || gate->open;
}

absl::Status FakeGpu::QueueWait(std::shared_ptr<Gate> gate, Stream stream) {
  return QueueNow(stream, {.work = nullptr, .after = std::move(gate)});
}

absl::Status FakeGpu::QueueOpen(std::shared_ptr<Gate> gate, Stream stream) {
  return QueueNow(stream, {.work = [gate = std::move(gate)] { gate->open = true; }, .after = nullptr});
}

void FakeGpu::Open(Gate& gate) {
  std::lock_guard lock(mutex_);
  gate.open = true;
}

void FakeGpu::Look() {
  std::lock_guard lock(mutex_);
  LookLocked();
}

void FakeGpu::LookLocked() {
  for (auto steps = queues_->random() % 3; steps > 0; --steps) Step();
}

bool FakeGpu::IsOpen(const Gate& gate) const {
  std::lock_guard lock(mutex_);
  return gate.open;
}

// --- Copies ---

absl::Status FakeGpu::Copy(void* to, const void* from, int64_t bytes, Stream stream) {
  if (bytes <= 0) return absl::OkStatus();
  return Queue(stream, {.work = [=] { std::memcpy(to, from, static_cast<size_t>(bytes)); }, .after = nullptr});
}

absl::Status FakeGpu::Zero(void* memory, int64_t bytes, Stream stream) {
  if (bytes <= 0) return absl::OkStatus();
  return Queue(stream, {.work = [=] { std::memset(memory, 0, static_cast<size_t>(bytes)); }, .after = nullptr});
}

}  // namespace gyre::device
