// Staging: pinned pieces of the host's arena that tensors pass through on their way between a GPU and the other ranks,
// and the streams that carry them there and back. For all backends that go by way of the host's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "device/gpu.h"
#include "transport/shm/arena.h"

namespace gyre::internal::staged {

// How large and how many: equal on all ranks.
struct Sizes {
  int64_t slot_bytes =
      4 << 20;    // a multiple of 128; large enough that a copy's and a collective's start are lost in it
  int slots = 4;  // one is copied out, one in the collective, one copied back, one ready
};

// Of the GPU's memory.
struct Area {
  void* memory = nullptr;
  int64_t bytes = 0;
};

// What one operation at a time uses.
struct Ring {
  struct Slot {
    std::byte* memory = nullptr;
    device::Gpu::Event copied_out = nullptr;   // it may be given to the collective
    device::Gpu::Event copied_back = nullptr;  // it may be filled anew
  };
  std::byte* piece = nullptr;   // of the arena
  std::byte* memory = nullptr;  // in it, on pages of its own
  int64_t slot_bytes = 0;
  std::vector<Slot> slots;
  device::Gpu::Stream out = nullptr, back = nullptr;
  device::Gpu::Stream within = nullptr;  // see HaveWithin
  std::vector<Area> areas;               // for what is exchanged there: the last is the current one
};

// Thread-safe. Of one GPU.
class Rings {
 public:
  Rings(std::shared_ptr<device::Gpu> gpu, std::shared_ptr<Arena> arena, const Sizes& sizes);
  ~Rings();
  Rings(const Rings&) = delete;
  Rings& operator=(const Rings&) = delete;

  const Sizes& sizes() const { return sizes_; }
  device::Gpu& gpu() const { return *gpu_; }

  // Rings are kept once they are there, as many as operations ever used at once. A ring of other slots than
  // `sizes.slot_bytes` has one, of `slot_bytes` or more. kResourceExhausted: the arena or the GPU has no more.
  absl::StatusOr<std::unique_ptr<Ring>> Take(int64_t slot_bytes);

  // From then on the ring has a stream for what ranks of a host exchange on their GPUs.
  absl::Status HaveWithin(Ring& ring);

  // At least so much of the GPU's memory, for as long as the ring is taken; aligned to 256 bytes. What is queued may go
  // on using what an earlier call gave. Areas are kept too, also those of spoilt rings: to free them would wait for all
  // that the GPU has to do. kResourceExhausted: the GPU has no more.
  absl::StatusOr<std::byte*> AreaOf(Ring& ring, int64_t bytes);

  // `spoilt`: it is not used again, for its operation has failed, and late ranks may yet write to it. Its memory goes
  // back once the GPU has done with it, which one that hangs never has.
  void Give(std::unique_ptr<Ring> ring, bool spoilt);

 private:
  absl::StatusOr<std::unique_ptr<Ring>> Make(int64_t slot_bytes, int slots);
  absl::Status Fill(Ring& ring, int slots);
  void MarkEnd(Ring& ring);
  std::vector<std::unique_ptr<Ring>> TakeRested();
  Area TakeSpare(int64_t bytes);
  void Destroy(Ring& ring);

  const std::shared_ptr<device::Gpu> gpu_;
  const std::shared_ptr<Arena> arena_;
  const Sizes sizes_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Ring>> idle_;    // guarded by mutex_
  std::vector<std::unique_ptr<Ring>> spoilt_;  // guarded by mutex_; the first slot's events mark their end
  std::vector<Area> spare_areas_;              // of rings that are gone; guarded by mutex_
};

}  // namespace gyre::internal::staged
