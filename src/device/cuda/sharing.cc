#include "device/cuda/sharing.h"

#include <cstring>
#include <random>

#include "base/status.h"
#include "device/cuda/call.h"

namespace gyre::device::cuda {

namespace {

// PIDs repeat: ranks of one host may each be the first process of a PID namespace of theirs.
uint64_t ThisProcess() {
  static const uint64_t token = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  return token;
}

// What a handle holds: whose it is, what that process calls it, and CUDA's own.
template <typename CudaHandle>
struct Content {
  uint64_t process = 0;
  void* own = nullptr;
  CudaHandle handle = {};
};

using MemoryContent = Content<cudaIpcMemHandle_t>;
using EventContent = Content<cudaIpcEventHandle_t>;
static_assert(sizeof(MemoryContent) <= sizeof(GpuSharing::Handle));
static_assert(sizeof(EventContent) <= sizeof(GpuSharing::Handle));

template <typename AnyContent>
GpuSharing::Handle Packed(const AnyContent& content) {
  GpuSharing::Handle handle = {};
  std::memcpy(handle.data(), &content, sizeof content);
  return handle;
}

template <typename AnyContent>
AnyContent Unpacked(const GpuSharing::Handle& handle) {
  AnyContent content;
  std::memcpy(&content, handle.data(), sizeof content);
  return content;
}

// Whatever it is that CUDA says, who asked can do without.
absl::Status Unreachable(const absl::Status& status) {
  return status.ok() ? status : absl::UnavailableError(status.message());
}

// Makes memory of this process's own that is on another of its GPUs reachable from GPU `ordinal`.
cudaError_t ReachOwn(void* memory, int ordinal) {
  cudaPointerAttributes attributes = {};
  if (const cudaError_t error = cudaPointerGetAttributes(&attributes, memory); error != cudaSuccess) return error;
  if (attributes.device == ordinal) return cudaSuccess;
  const cudaError_t error = cudaDeviceEnablePeerAccess(attributes.device, 0);
  return error == cudaErrorPeerAccessAlreadyEnabled ? cudaSuccess : error;
}

}  // namespace

absl::StatusOr<GpuSharing::Handle> CudaSharing::ExportMemory(void* memory) {
  MemoryContent content{.process = ThisProcess(), .own = memory};
  RETURN_IF_ERROR(Unreachable(On(
      primary_, [&] { return cudaIpcGetMemHandle(&content.handle, memory); }, "sharing memory of a GPU")));
  return Packed(content);
}

absl::StatusOr<void*> CudaSharing::OpenMemory(const Handle& handle) {
  const auto content = Unpacked<MemoryContent>(handle);
  if (content.process == ThisProcess()) {
    RETURN_IF_ERROR(Unreachable(On(
        primary_, [&] { return ReachOwn(content.own, primary_.ordinal); }, "reaching memory of another GPU")));
    std::lock_guard lock(mutex_);
    own_.insert(content.own);
    return content.own;
  }
  void* memory = nullptr;
  RETURN_IF_ERROR(Unreachable(On(
      primary_, [&] { return cudaIpcOpenMemHandle(&memory, content.handle, cudaIpcMemLazyEnablePeerAccess); },
      "opening another process's memory of a GPU")));
  return memory;
}

void CudaSharing::CloseMemory(void* opened) {
  {
    std::lock_guard lock(mutex_);
    if (const auto own = own_.find(opened); own != own_.end()) {
      own_.erase(own);
      return;
    }
  }
  GiveBack(primary_, [&] { cudaIpcCloseMemHandle(opened); });
}

absl::StatusOr<Gpu::Event> CudaSharing::CreateEvent() {
  cudaEvent_t event = nullptr;
  RETURN_IF_ERROR(On(
      primary_, [&] { return cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess); },
      "making an event for several processes"));
  return event;
}

absl::StatusOr<GpuSharing::Handle> CudaSharing::ExportEvent(Gpu::Event event) {
  EventContent content{.process = ThisProcess(), .own = event};
  RETURN_IF_ERROR(Unreachable(On(
      primary_, [&] { return cudaIpcGetEventHandle(&content.handle, EventOf(event)); }, "sharing an event")));
  return Packed(content);
}

absl::StatusOr<Gpu::Event> CudaSharing::OpenEvent(const Handle& handle) {
  const auto content = Unpacked<EventContent>(handle);
  if (content.process == ThisProcess()) {
    std::lock_guard lock(mutex_);
    own_.insert(content.own);
    return content.own;
  }
  cudaEvent_t event = nullptr;
  RETURN_IF_ERROR(Unreachable(On(
      primary_, [&] { return cudaIpcOpenEventHandle(&event, content.handle); }, "opening another process's event")));
  return event;
}

void CudaSharing::CloseEvent(Gpu::Event opened) {
  {
    std::lock_guard lock(mutex_);
    if (const auto own = own_.find(opened); own != own_.end()) {
      own_.erase(own);
      return;
    }
  }
  GiveBack(primary_, [&] { cudaEventDestroy(EventOf(opened)); });
}

}  // namespace gyre::device::cuda
