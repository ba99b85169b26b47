#include "collectives/nccl/memory.h"

#include <chrono>
#include <utility>

#include "collectives/nccl/factory.h"

namespace gyre::internal::nccl {

Memory::Memory(Api& api, std::shared_ptr<device::Gpu> gpu, int64_t least)
    : api_(api), gpu_(std::move(gpu)), least_(least) {}

Memory::~Memory() = default;

absl::StatusOr<void*> Memory::Allocate(int64_t bytes) {
  if (bytes < least_) return gpu_->Allocate(bytes);
  absl::StatusOr<void*> memory = api_.Allocate(gpu_->ordinal(), bytes);
  if (!memory.ok()) return gpu_->Allocate(bytes);
  const absl::StatusOr<void*> freed_first = gpu_->Allocate(1);
  if (!freed_first.ok()) {
    api_.Free(gpu_->ordinal(), *memory);
    return freed_first.status();
  }
  std::lock_guard lock(mutex_);
  pieces_[*memory] = {bytes, *freed_first};
  return memory;
}

void Memory::Free(void* memory) {
  void* freed_first = memory;
  std::vector<std::weak_ptr<Connection>> connections;
  {
    std::lock_guard lock(mutex_);
    if (const auto piece = pieces_.find(memory); piece != pieces_.end()) {
      freed_first = piece->second.freed_first;
      pieces_.erase(piece);
      connections = connections_;
    }
  }
  gpu_->Free(freed_first);
  if (freed_first == memory) return;
  bool free = true;
  const TimePoint limit = std::chrono::steady_clock::now() + Connection::kPatience;
  for (const auto& each : connections) {
    if (const auto connection = each.lock(); connection != nullptr) free = connection->Forget(memory, limit) && free;
  }
  if (free) api_.Free(gpu_->ordinal(), memory);
}

std::optional<Memory::Piece> Memory::Find(const void* data) const {
  std::lock_guard lock(mutex_);
  auto after = pieces_.upper_bound(data);
  if (after == pieces_.begin()) return std::nullopt;
  const auto& [begin, entry] = *--after;
  if (static_cast<const std::byte*>(data) >= static_cast<const std::byte*>(begin) + entry.bytes) return std::nullopt;
  return Piece{const_cast<void*>(begin), entry.bytes};
}

void Memory::Attach(const std::shared_ptr<Connection>& connection) {
  std::lock_guard lock(mutex_);
  std::erase_if(connections_, [](const auto& each) { return each.expired(); });
  connections_.push_back(connection);
}

std::shared_ptr<Memory> MakeMemory(Api& api, std::shared_ptr<device::Gpu> gpu, int64_t least) {
  return std::make_shared<Memory>(api, std::move(gpu), least);
}

std::shared_ptr<device::GpuAllocator> AllocatorOf(std::shared_ptr<Memory> memory) {
  return memory;
}

bool Has(const Memory& memory, const void* data) {
  return memory.Find(data).has_value();
}

}  // namespace gyre::internal::nccl
