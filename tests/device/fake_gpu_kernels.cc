// The fake GPU's kernels: element by element, by the same tables of tiles.
#include <cmath>
#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include "device/fake_gpu.h"
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

absl::StatusOr<std::unique_ptr<Gpu::Table>> FakeGpu::Upload(PackTable table, Stream used_on) {
  return std::make_unique<FakeTable>(*this, std::move(table), used_on);
}

void FakeGpu::Retire(std::shared_ptr<PackTable> table, Stream used_on) {
  std::lock_guard lock(mutex_);
  EXPECT_FALSE(queues_->graphs.contains(used_on)) << "a table's end is captured";
  queues_->streams[used_on].push_back({.work = [kept = std::move(table)] {}, .after = nullptr});
}

absl::Status FakeGpu::Pack(const Table& table, void* buffer, double scale, Stream stream) {
  RETURN_IF_ERROR(CheckScale(table.host(), scale));
  if (const auto graph = CapturedInto(stream); graph != nullptr) {
    RETURN_IF_ERROR(NextCaptured());
    return graph->AddPack(table, buffer, scale, false);
  }
  {
    std::lock_guard lock(mutex_);
    ++queued_;
  }
  return QueuePack(table.host(), buffer, scale, false, stream);
}

absl::Status FakeGpu::Unpack(const Table& table, const void* buffer, double scale, Stream stream) {
  RETURN_IF_ERROR(CheckScale(table.host(), scale));
  void* const read = const_cast<void*>(buffer);
  if (const auto graph = CapturedInto(stream); graph != nullptr) {
    RETURN_IF_ERROR(NextCaptured());
    return graph->AddPack(table, read, scale, true);
  }
  {
    std::lock_guard lock(mutex_);
    ++queued_;
  }
  return QueuePack(table.host(), read, scale, true, stream);
}

absl::Status FakeGpu::QueuePack(const PackTable& table, void* buffer, double scale, bool unpacks, Stream stream) {
  const auto move = [&table, buffer, scale, unpacks] {
    for (const Tile& tile : table.tiles) {
      const Segment& segment = table.segments[static_cast<size_t>(tile.segment)];
      for (int64_t i = tile.first; i < tile.first + tile.count; ++i) {
        if (unpacks) {
          Move(table.buffer_dtype, buffer, segment.first + i, segment.dtype, segment.data, i, scale);
        } else {
          Move(segment.dtype, segment.data, i, table.buffer_dtype, buffer, segment.first + i, scale);
        }
      }
    }
  };
  return QueueNow(stream, {.work = move, .after = nullptr});
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

absl::Status FakeGpu::AddSquares(ConstTensorView view, double* parts, uint64_t* non_finite, Stream stream) {
  if (!Convertible(view.dtype) && view.dtype != DType::kF64) {
    return absl::InvalidArgumentError("squares are of floating-point tensors");
  }
  {
    std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(squares_failure_);
  }
  return Queue(stream, {.work =
                            [view, parts, non_finite] {
                              constexpr size_t kThreads = kSquareThreads, kAll = kThreads * kSquareParts;
                              std::vector<double> sums(kAll);
                              for (int64_t i = 0; i < view.count; ++i) {
                                const double value = Load(view.dtype, view.data, i);
                                if (non_finite != nullptr && !std::isfinite(value)) {
                                  ++*non_finite;
                                } else {
                                  sums[static_cast<size_t>(i) % kAll] += value * value;
                                }
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
