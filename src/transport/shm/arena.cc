#include "transport/shm/arena.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

absl::Status ReservePages(int fd, int64_t offset, int64_t bytes) {
  while (fallocate(fd, 0, offset, bytes) != 0) {
    if (errno == EINTR) continue;  // a profiler's signals, say
    const absl::Status status = ErrnoStatus(absl::StrCat("cannot reserve memory for ", bytes, " bytes"));
    return absl::ResourceExhaustedError(status.message());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Arena>> Arena::Create(int64_t bytes) {
  ASSIGN_OR_RETURN(shm::Segment segment, shm::Segment::Create("gyre-arena", bytes));
  return std::shared_ptr<Arena>(new Arena(std::move(segment)));
}

Arena::Arena(shm::Segment segment) : segment_(std::move(segment)) {
  free_[0] = segment_.size();
}

absl::StatusOr<std::byte*> Arena::Allocate(int64_t bytes) {
  RETURN_IF_ERROR(process_.Check());
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("cannot allocate ", bytes, " bytes"));
  if (bytes > segment_.size()) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes: the arena has ",
                                                     segment_.size(), " (RuntimeOptions::arena_bytes)"));
  }
  const int64_t size = std::max<int64_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
  std::lock_guard lock(mutex_);
  const auto fit = std::ranges::find_if(free_, [size](const auto& range) { return range.second >= size; });
  if (fit == free_.end()) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes: no free range of the arena's ",
                                                     segment_.size(), " bytes is long enough"));
  }
  const auto [offset, length] = *fit;
  RETURN_IF_ERROR(ReservePages(segment_.fd(), offset, size));
  free_.erase(fit);
  if (length > size) free_[offset + size] = length - size;
  allocated_[offset] = {size, false};
  return segment_.data() + offset;
}

void Arena::Retire(const void* data) {
  const auto offset = OffsetOf(data, 0);
  if (!offset || process_.forked()) return;
  std::lock_guard lock(mutex_);
  const auto after = allocated_.upper_bound(*offset);
  if (after != allocated_.begin()) std::prev(after)->second.retired = true;
}

void Arena::Free(std::byte* piece) {
  if (process_.forked()) return;
  std::lock_guard lock(mutex_);
  const auto found = allocated_.find(piece - segment_.data());
  if (found == allocated_.end()) return;
  const int64_t offset = found->first;
  auto [size, retired] = found->second;
  allocated_.erase(found);
  if (retired) return;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  free_[offset] = size;
}

int64_t Arena::allocated() const {
  std::lock_guard lock(mutex_);
  int64_t total = 0;
  for (const auto& [offset, piece] : allocated_) total += piece.bytes;
  return total;
}

}  // namespace gyre::internal
