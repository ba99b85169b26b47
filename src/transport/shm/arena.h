// Arena: allocates pieces of one shared segment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/statusor.h"
#include "base/process_mark.h"
#include "transport/shm/segment.h"

namespace gyre::internal {

// Bytes of each of `ranks` arenas on a machine with so much memory, where nobody said how many: the memory, but all
// arenas must find room in an address space of 2^47 bytes, even where one process has all ranks as threads, each of
// which maps all arenas. At least 1 GiB.
constexpr int64_t DefaultArenaBytes(int64_t memory, int64_t ranks) {
  return std::max(int64_t{1} << 30, std::min(memory, (int64_t{1} << 45) / (ranks * ranks)));
}

// First fit over free ranges kept by address, which merge when freed. Thread-safe. Pages are reserved when a piece is
// allocated, so that an exhausted machine is a status here rather than a signal at the first store; they stay with the
// arena when the piece is freed.
class Arena {
 public:
  static constexpr int64_t kAlignment = 128;  // two cache lines: no two pieces share what a prefetcher pulls

  static absl::StatusOr<std::shared_ptr<Arena>> Create(int64_t bytes);

  // A piece of `bytes` (0 is allowed and takes one alignment unit). kResourceExhausted says what was asked and left;
  // kFailedPrecondition: in a forked child, where the memory is still the parent's, and Free and Retire do nothing.
  absl::StatusOr<std::byte*> Allocate(int64_t bytes);
  void Free(std::byte* piece);

  // The piece that `data` lies in is never handed out again, even once it is freed: another rank may yet write into it.
  void Retire(const void* data);

  // Where [data, data + bytes) lies from the segment's start, if it lies in this arena.
  std::optional<int64_t> OffsetOf(const void* data, int64_t bytes) const {
    // As integers: the pointer may belong to any object.
    const auto at = reinterpret_cast<uintptr_t>(data), begin = reinterpret_cast<uintptr_t>(segment_.data());
    const auto offset = static_cast<int64_t>(at - begin);
    if (at < begin || offset > segment_.size() - bytes) return std::nullopt;
    return offset;
  }

  const shm::Segment& segment() const { return segment_; }
  const ProcessMark& process() const { return process_; }  // that it was made in
  int64_t allocated() const;                               // bytes in pieces now

 private:
  struct Piece {
    int64_t bytes;
    bool retired;
  };

  explicit Arena(shm::Segment segment);

  const ProcessMark process_;
  shm::Segment segment_;
  mutable std::mutex mutex_;
  std::map<int64_t, int64_t> free_;     // offset -> bytes; guarded by mutex_
  std::map<int64_t, Piece> allocated_;  // by offset; guarded by mutex_
};

}  // namespace gyre::internal
