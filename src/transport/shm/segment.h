// Segment: memory that processes share. A memfd, sealed so that nobody can shrink it under a reader (which would be
// SIGBUS), mapped whole. It has no name, needs no /dev/shm, and is gone with its last holder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace gyre::shm {

// Movable. The mapping lives as long as the object. Address space only: pages are taken when first touched.
class Segment {
 public:
  // A new segment of `bytes` zero bytes (rounded up to whole pages). `label` shows in /proc/PID/maps.
  static absl::StatusOr<Segment> Create(const char* label, int64_t bytes);

  // A segment that another process made, from its descriptor. kDataLoss unless it is a memfd, sealed, and at least
  // `min_bytes` long.
  static absl::StatusOr<Segment> Map(UniqueFd fd, int64_t min_bytes);

  Segment() = default;
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  int fd() const { return fd_.get(); }  // -1 once closed
  void CloseFd() { fd_.Reset(); }       // the mapping stays

 private:
  Segment(UniqueFd fd, std::byte* data, int64_t size) : fd_(std::move(fd)), data_(data), size_(size) {}

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace gyre::shm
