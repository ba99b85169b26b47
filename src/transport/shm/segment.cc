#include "transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::shm {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::StatusOr<std::byte*> MapWhole(int fd, int64_t bytes) {
  void* at = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (at == MAP_FAILED) return ErrnoStatus(absl::StrCat("cannot map ", bytes, " bytes of shared memory"));
  // Where shared huge pages are on by advice, take them; a kernel without them says no, without harm. A core file
  // need not hold every rank's arena.
  madvise(at, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  madvise(at, static_cast<size_t>(bytes), MADV_DONTDUMP);
  return static_cast<std::byte*>(at);
}

}  // namespace

absl::StatusOr<Segment> Segment::Create(const char* label, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  bytes = (bytes + page - 1) / page * page;
  UniqueFd fd(memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return ErrnoStatus("cannot create shared memory (memfd_create)");
  if (ftruncate(fd.get(), bytes) != 0) {
    return ErrnoStatus(absl::StrCat("cannot size shared memory to ", bytes, " bytes"));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return ErrnoStatus("cannot seal shared memory");
  ASSIGN_OR_RETURN(std::byte * data, MapWhole(fd.get(), bytes));
  return Segment(std::move(fd), data, bytes);
}

absl::StatusOr<Segment> Segment::Map(UniqueFd fd, int64_t min_bytes) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::DataLossError("a peer's shared memory is not a memfd sealed against resizing");
  }
  struct stat status = {};
  if (fstat(fd.get(), &status) != 0) return ErrnoStatus("cannot examine a peer's shared memory");
  if (status.st_size < min_bytes) {
    return absl::DataLossError(
        absl::StrCat("a peer's shared memory has ", status.st_size, " bytes; at least ", min_bytes, " expected"));
  }
  ASSIGN_OR_RETURN(std::byte * data, MapWhole(fd.get(), status.st_size));
  return Segment(std::move(fd), data, status.st_size);
}

Segment::~Segment() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_));
}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace gyre::shm
