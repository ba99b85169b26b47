#include "device/fake_gpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "gyre/status_macros.h"

namespace gyre::device {

namespace {

template <typename T>
T At(const void* data, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

double Load(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kF16: return static_cast<float>(At<Float16>(data, i));
    case DType::kBF16: return static_cast<float>(At<BFloat16>(data, i));
    case DType::kF64: return At<double>(data, i);
    default: return At<float>(data, i);
  }
}

void Store(DType dtype, float value, void* data, int64_t i) {
  char* const at = static_cast<char*>(data) + i * DTypeSize(dtype);
  const auto store = [&](auto converted) { std::memcpy(at, &converted, sizeof converted); };
  switch (dtype) {
    case DType::kF16: return store(Float16(value));
    case DType::kBF16: return store(BFloat16(value));
    default: return store(value);
  }
}

void Move(DType from_dtype, const void* from, int64_t from_at, DType to_dtype, void* to, int64_t to_at, double scale) {
  if (from_dtype == to_dtype && scale == 1.0) {
    const auto size = DTypeSize(from_dtype);
    std::memcpy(static_cast<char*>(to) + to_at * size, static_cast<const char*>(from) + from_at * size,
                static_cast<size_t>(size));
    return;
  }
  Store(to_dtype, static_cast<float>(Load(from_dtype, from, from_at)) * static_cast<float>(scale), to, to_at);
}

}  // namespace

// Gone once what was queued before its end has been done.
struct FakeGpu::TableHere final : Table {
  TableHere(FakeGpu& gpu, PackTable table, Stream used_on)
      : gpu(gpu), table(std::make_unique<PackTable>(std::move(table))), used_on(used_on) {}
  ~TableHere() override { gpu.Retire(std::move(table), used_on); }
  const PackTable& host() const override { return *table; }

  FakeGpu& gpu;
  std::unique_ptr<PackTable> table;
  Stream const used_on;
};

FakeGpu::~FakeGpu() {
  for (const auto& [event, mark] : events_) delete static_cast<char*>(event);
  for (const auto& [stream, items] : streams_) delete static_cast<char*>(stream);
  for (void* memory : allocations_) ::operator delete (memory, std::align_val_t{256});
}

void FakeGpu::Stall(bool stalled) {
  std::lock_guard lock(mutex_);
  stalled_ = stalled;
}

void FakeGpu::Hold(Stream stream, bool held) {
  std::lock_guard lock(mutex_);
  if (held) {
    held_.insert(stream);
  } else {
    held_.erase(stream);
  }
}

void FakeGpu::Capture(Stream stream) {
  std::lock_guard lock(mutex_);
  captured_.insert(stream);
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
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  streams_[stream].push_back(std::move(item));
  if (random_() % 4 == 0) Step();
  return absl::OkStatus();
}

// Does what is first on one of the streams that can go on. False: none can.
bool FakeGpu::Step() {
  if (stalled_) return false;
  std::vector<std::deque<Item>*> able;
  for (auto& [stream, items] : streams_) {
    if (items.empty() || held_.contains(stream)) continue;
    if (items.front().after == nullptr || items.front().after->reached) able.push_back(&items);
  }
  if (able.empty()) return false;
  std::deque<Item>& items = *able[random_() % able.size()];
  const Item item = std::move(items.front());
  items.pop_front();
  if (item.work) item.work();
  return true;
}

void FakeGpu::Drain(Stream stream) {
  while (!streams_[stream].empty() && Step()) {
  }
}

absl::StatusOr<Gpu::Stream> FakeGpu::CreateStream() {
  std::lock_guard lock(mutex_);
  Stream const stream = new char;
  streams_[stream];
  return stream;
}

void FakeGpu::DestroyStream(Stream stream) {
  std::lock_guard lock(mutex_);
  Drain(stream);
  if (!streams_[stream].empty()) return;  // goes with this, for what is queued is done all the same
  streams_.erase(stream);
  delete static_cast<char*>(stream);
}

absl::Status FakeGpu::Synchronize(Stream stream) {
  std::lock_guard lock(mutex_);
  Drain(stream);
  if (!streams_[stream].empty()) ++blocked_;
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

// One that fails leaves the event as it was, as CUDA's does.
absl::Status FakeGpu::Record(Event event, Stream stream) {
  {
    std::lock_guard lock(mutex_);
    if (captured_.contains(stream)) return absl::FailedPreconditionError("the stream is being captured");
  }
  auto mark = std::make_shared<Mark>();
  RETURN_IF_ERROR(Queue(stream, {.work = [mark] { mark->reached = true; }, .after = nullptr}));
  std::lock_guard lock(mutex_);
  events_[event] = std::move(mark);
  return absl::OkStatus();
}

absl::Status FakeGpu::Wait(Stream stream, Event event) {
  std::shared_ptr<Mark> mark;
  {
    std::lock_guard lock(mutex_);
    mark = events_[event];
  }
  if (mark == nullptr) return absl::OkStatus();
  return Queue(stream, {.work = nullptr, .after = std::move(mark)});
}

absl::StatusOr<bool> FakeGpu::Done(Event event) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  for (auto steps = random_() % 3; steps > 0; --steps) Step();
  const auto& mark = events_[event];
  return mark == nullptr || mark->reached;
}

// --- Memory ---

absl::StatusOr<void*> FakeGpu::Allocate(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (allocations_before_failure_-- <= 0) RETURN_IF_ERROR(allocate_failure_);
  void* const memory = ::operator new (static_cast<size_t>(bytes), std::align_val_t{256});
  allocations_.insert(memory);
  return memory;
}

void FakeGpu::Free(void* memory) {
  EXPECT_FALSE(sharing_.IsOpen(memory)) << "memory is freed that others have open";
  std::lock_guard lock(mutex_);
  const bool busy = std::ranges::any_of(streams_, [](const auto& stream) { return !stream.second.empty(); });
  EXPECT_FALSE(stalled_ && busy && memory != nullptr) << "freeing waits for a GPU that hangs";
  while (Step()) {
  }
  for (const auto& [stream, items] : streams_) {
    if (items.empty()) continue;
    ++blocked_;
    break;
  }
  if (allocations_.erase(memory) == 1) ::operator delete (memory, std::align_val_t{256});
}

absl::Status FakeGpu::Pin(void* memory, int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (reinterpret_cast<uintptr_t>(memory) % 4096 != 0 || bytes % 4096 != 0) {
    return absl::InvalidArgumentError("what is pinned must be pages");
  }
  RETURN_IF_ERROR(pin_failure_);
  if (!pinned_.emplace(memory, bytes).second) return absl::InternalError("pinned twice");
  return absl::OkStatus();
}

void FakeGpu::Unpin(void* memory) {
  std::lock_guard lock(mutex_);
  pinned_.erase(memory);
}

absl::Status FakeGpu::Copy(void* to, const void* from, int64_t bytes, Stream stream) {
  if (bytes <= 0) return absl::OkStatus();
  return Queue(stream, {.work = [=] { std::memcpy(to, from, static_cast<size_t>(bytes)); }, .after = nullptr});
}

absl::Status FakeGpu::Zero(void* memory, int64_t bytes, Stream stream) {
  if (bytes <= 0) return absl::OkStatus();
  return Queue(stream, {.work = [=] { std::memset(memory, 0, static_cast<size_t>(bytes)); }, .after = nullptr});
}

// --- Kernels ---

absl::StatusOr<std::unique_ptr<Gpu::Table>> FakeGpu::Upload(PackTable table, Stream used_on) {
  return std::make_unique<TableHere>(*this, std::move(table), used_on);
}

void FakeGpu::Retire(std::unique_ptr<PackTable> table, Stream used_on) {
  std::lock_guard lock(mutex_);
  streams_[used_on].push_back({.work = [kept = std::shared_ptr<PackTable>(std::move(table))] {}, .after = nullptr});
}

absl::Status FakeGpu::Pack(const Table& table, void* buffer, double scale, Stream stream) {
  RETURN_IF_ERROR(CheckScale(table.host(), scale));
  return Queue(stream, {.work =
                            [&host = table.host(), buffer, scale] {
                              for (const Tile& tile : host.tiles) {
                                const Segment& segment = host.segments[static_cast<size_t>(tile.segment)];
                                for (int64_t i = tile.first; i < tile.first + tile.count; ++i) {
                                  Move(segment.dtype, segment.data, i, host.buffer_dtype, buffer, segment.first + i,
                                       scale);
                                }
                              }
                            },
                        .after = nullptr});
}

absl::Status FakeGpu::Unpack(const Table& table, const void* buffer, double scale, Stream stream) {
  RETURN_IF_ERROR(CheckScale(table.host(), scale));
  return Queue(stream, {.work =
                            [&host = table.host(), buffer, scale] {
                              for (const Tile& tile : host.tiles) {
                                const Segment& segment = host.segments[static_cast<size_t>(tile.segment)];
                                for (int64_t i = tile.first; i < tile.first + tile.count; ++i) {
                                  Move(host.buffer_dtype, buffer, segment.first + i, segment.dtype, segment.data, i,
                                       scale);
                                }
                              }
                            },
                        .after = nullptr});
}

absl::Status FakeGpu::Reduce(const Reduction& reduction, std::span<const void* const> sources,
                             std::span<void* const> destinations, int64_t count, Stream stream) {
  RETURN_IF_ERROR(CheckOperands(sources.size(), destinations.size()));
  return Queue(stream, {.work = [reduction, from = std::vector<const void*>(sources.begin(), sources.end()),
                                 to = std::vector<void*>(destinations.begin(), destinations.end()),
                                 count] { device::Reduce(reduction, from, to, count); },
                        .after = nullptr});
}

absl::Status FakeGpu::CountNonFinite(ConstTensorView view, uint64_t* found, Stream stream) {
  if (!Convertible(view.dtype) && view.dtype != DType::kF64) return absl::OkStatus();
  return Queue(stream, {.work =
                            [view, found] {
                              for (int64_t i = 0; i < view.count; ++i) {
                                *found += static_cast<uint64_t>(!std::isfinite(Load(view.dtype, view.data, i)));
                              }
                            },
                        .after = nullptr});
}

absl::Status FakeGpu::AddSquares(ConstTensorView view, double* parts, Stream stream) {
  if (!Convertible(view.dtype) && view.dtype != DType::kF64) {
    return absl::InvalidArgumentError("squares are of floating-point tensors");
  }
  {
    std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(squares_failure_);
  }
  return Queue(stream, {.work =
                            [view, parts] {
                              constexpr size_t kThreads = kSquareThreads, kAll = kThreads * kSquareParts;
                              std::vector<double> sums(kAll);
                              for (int64_t i = 0; i < view.count; ++i) {
                                const double value = Load(view.dtype, view.data, i);
                                sums[static_cast<size_t>(i) % kAll] += value * value;
                              }
                              for (size_t part = 0; part < kSquareParts; ++part) {
                                double* const mine = &sums[part * kThreads];
                                for (size_t half = kThreads / 2; half > 0; half /= 2) {
                                  for (size_t thread = 0; thread < half; ++thread) mine[thread] += mine[thread + half];
                                }
                                parts[part] += mine[0];
                              }
                            },
                        .after = nullptr});
}

// By the kernels' own code, as so many threads as it happens.
absl::Status FakeGpu::Update(const UpdateRule& rule, std::span<const kernels::Weights> tensors, Stream stream) {
  return Queue(stream, {.work =
                            [rule, tensors = std::vector<kernels::Weights>(tensors.begin(), tensors.end())] {
                              constexpr int64_t kThreads = 7;
                              for (const kernels::Weights& tensor : tensors) {
                                for (int64_t thread = kThreads - 1; thread >= 0; --thread) {
                                  std::visit(
                                      [&](const auto& one) { kernels::UpdateFours(one, tensor, thread, kThreads); },
                                      rule);
                                }
                              }
                            },
                        .after = nullptr});
}

}  // namespace gyre::device
