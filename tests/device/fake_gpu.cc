#include "device/fake_gpu.h"

#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "gyre/status_macros.h"

namespace gyre::device {

namespace {

struct FakeTable final : Gpu::Table {
  explicit FakeTable(PackTable table) : table(std::move(table)) {}
  const PackTable& host() const override { return table; }
  const PackTable table;
};

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

FakeGpu::~FakeGpu() {
  for (void* memory : allocations_) ::operator delete (memory, std::align_val_t{256});
}

absl::StatusOr<void*> FakeGpu::Allocate(int64_t bytes) {
  void* const memory = ::operator new (static_cast<size_t>(bytes), std::align_val_t{256});
  allocations_.insert(memory);
  return memory;
}

void FakeGpu::Free(void* memory) {
  if (allocations_.erase(memory) == 1) ::operator delete (memory, std::align_val_t{256});
}

absl::Status FakeGpu::Copy(void* to, const void* from, int64_t bytes, Stream /*stream*/) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Gpu::Table>> FakeGpu::Upload(PackTable table) {
  return std::make_unique<FakeTable>(std::move(table));
}

absl::Status FakeGpu::Pack(const Table& table, void* buffer, double scale, Stream /*stream*/) {
  const PackTable& host = table.host();
  RETURN_IF_ERROR(CheckScale(host, scale));
  for (const Tile& tile : host.tiles) {
    const Segment& segment = host.segments[static_cast<size_t>(tile.segment)];
    for (int64_t i = tile.first; i < tile.first + tile.count; ++i) {
      Move(segment.dtype, segment.data, i, host.buffer_dtype, buffer, segment.first + i, scale);
    }
  }
  return absl::OkStatus();
}

absl::Status FakeGpu::Unpack(const Table& table, const void* buffer, double scale, Stream /*stream*/) {
  const PackTable& host = table.host();
  RETURN_IF_ERROR(CheckScale(host, scale));
  for (const Tile& tile : host.tiles) {
    const Segment& segment = host.segments[static_cast<size_t>(tile.segment)];
    for (int64_t i = tile.first; i < tile.first + tile.count; ++i) {
      Move(host.buffer_dtype, buffer, segment.first + i, segment.dtype, segment.data, i, scale);
    }
  }
  return absl::OkStatus();
}

absl::Status FakeGpu::Reduce(const Reduction& reduction, std::span<const void* const> sources,
                             std::span<void* const> destinations, int64_t count, Stream /*stream*/) {
  RETURN_IF_ERROR(CheckOperands(sources.size(), destinations.size()));
  device::Reduce(reduction, sources, destinations, count);
  return absl::OkStatus();
}

absl::Status FakeGpu::CountNonFinite(ConstTensorView view, uint64_t* found, Stream /*stream*/) {
  const bool floating = Convertible(view.dtype) || view.dtype == DType::kF64;
  for (int64_t i = 0; floating && i < view.count; ++i) *found += !std::isfinite(Load(view.dtype, view.data, i));
  return absl::OkStatus();
}

}  // namespace gyre::device
