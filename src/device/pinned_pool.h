// PinnedPool: host memory for copies to and from a GPU, in pieces that are used again once their copy has been done.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/gpu.h"
#include "device/pinned_memory.h"

namespace gyre::device {

// Pieces are powers of two, so that sizes that grow leave few behind: all together they are at most four times the
// largest, for each piece that was in use at one time. Thread-safe. Its end waits for the GPU for 2 s at most; what the
// GPU still uses then stays allocated and pinned.
class PinnedPool {
 public:
  struct Piece {
    PinnedMemory memory{};
    int64_t bytes = 0;
    Gpu::Event copied = nullptr;  // who queues a copy records it behind that
  };

  explicit PinnedPool(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // A piece of `bytes` or more, the smallest there is, which nobody else has and no copy uses. kResourceExhausted, or
  // the GPU's errors.
  absl::StatusOr<Piece*> Take(int64_t bytes);

  // Queues a copy that begins or ends in the piece, and records `copied` behind it. Where it cannot be queued, as on a
  // stream that is being captured (kFailedPrecondition), nothing is, and the piece has been given back.
  absl::Status Copy(Piece* piece, void* to, const void* from, int64_t bytes, Gpu::Stream stream);

  // It is used no more but by the copy in front of `copied`. What is not given back is never freed.
  void Give(Piece* piece);

 private:
  absl::StatusOr<Piece*> TakeIdle(int64_t bytes);
  absl::StatusOr<std::unique_ptr<Piece>> Make(int64_t bytes);

  const std::shared_ptr<Gpu> gpu_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Piece>> idle_;  // guarded by mutex_
};

}  // namespace gyre::device
