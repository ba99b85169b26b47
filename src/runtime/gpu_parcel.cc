#include "runtime/gpu_parcel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

GpuParcel::~GpuParcel() {
  GiveBack();
}

absl::Status GpuParcel::Resize(int64_t bytes) {
  if (bytes > capacity_) RETURN_IF_ERROR(Grow(bytes));
  size_ = bytes;
  return absl::OkStatus();
}

// By half at least, for what is outgrown on the GPU stays allocated. Rings of the ordinary size have several slots.
absl::Status GpuParcel::Grow(int64_t bytes) {
  int64_t wanted = std::max(bytes, capacity_ + capacity_ / 2);
  if (wanted == device_.rings().sizes().slot_bytes) ++wanted;
  auto ring = TakeRested(wanted);
  if (!ring.ok()) {
    return device_.Named(
        Annotate(ring.status(), absl::StrCat("no pinned memory for ", wanted, " bytes of compressed gradients")));
  }
  const auto memory = device_.Allocate(wanted, absl::StrCat(wanted, " bytes of compressed gradients"));
  if (!memory.ok()) {
    device_.rings().Give(*std::move(ring), true);  // rather than kept for others
    return memory.status();
  }
  GiveBack();
  ring_ = *std::move(ring);
  there_ = static_cast<std::byte*>(*memory);
  capacity_ = wanted;
  return absl::OkStatus();
}

// Calls end before their last copies: a ring that they gave back may yet be copied out of, on a stream of its own, and
// what is here is written by the host as well, which no stream orders. Each look takes one from those that are idle.
absl::StatusOr<std::unique_ptr<staged::Ring>> GpuParcel::TakeRested(int64_t bytes) {
  for (;;) {
    ASSIGN_OR_RETURN(auto ring, device_.rings().Take(bytes));
    const auto rests = device_.gpu().Done(ring->slots[0].copied_back);
    if (rests.ok() && *rests) return ring;
    device_.rings().Give(std::move(ring), true);
    RETURN_IF_ERROR(rests.status());
  }
}

// Copies may be under way: it is used again, or unpinned, once they have been done. Errors: a GPU that fails is not
// waited for.
void GpuParcel::GiveBack() {
  if (ring_ == nullptr) return;
  device_.Forget(ring_->slots[0].copied_out);
  device::Gpu::Event const last = ring_->slots[0].copied_back;
  if (device_.gpu().Record(last, device_.stream()).ok()) {
    (void)device_.gpu().Wait(ring_->out, last);
    (void)device_.gpu().Wait(ring_->back, last);
  }
  device_.rings().Give(std::move(ring_), true);
}

absl::Status GpuParcel::Bring() {
  if (size_ == 0) return absl::OkStatus();
  RETURN_IF_ERROR(device_.Named(device_.gpu().Copy(here(), there_, size_, device_.stream())));
  device::Gpu::Event const copied = ring_->slots[0].copied_out;
  RETURN_IF_ERROR(device_.Named(device_.gpu().Record(copied, device_.stream())));
  device_.Await(copied);
  return absl::OkStatus();
}

absl::Status GpuParcel::Send() {
  return device_.Named(device_.gpu().Copy(there_, here(), size_, device_.stream()));
}

}  // namespace gyre::internal
