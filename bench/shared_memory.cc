#include "shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "gyre/status_macros.h"

namespace gyre::bench {

namespace {

absl::StatusOr<UniqueFd> MakePiece(int64_t bytes) {
  UniqueFd piece(memfd_create("gyre-bench", MFD_CLOEXEC));
  if (!piece) return absl::ErrnoToStatus(errno, "memfd_create");
  // Pages, not only a length: what the machine does not have is an error here, not a signal later.
  if (const int error = posix_fallocate(piece.get(), 0, bytes); error != 0) {
    return absl::ErrnoToStatus(error, absl::StrCat("no ", bytes, " bytes of shared memory"));
  }
  return piece;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Create(Communicator& world, int64_t bytes) {
  if (world.node_count() > 1) return absl::FailedPreconditionError("ranks on several hosts share no memory");
  ASSIGN_OR_RETURN(const UniqueFd own, MakePiece(bytes));
  const std::array<int64_t, 2> place = {getpid(), own.get()};
  std::vector<int64_t> places(2 * static_cast<size_t>(world.size()));
  RETURN_IF_ERROR(world.AllGather(place, places));
  std::unique_ptr<SharedMemory> memory(new SharedMemory(bytes));
  for (size_t rank = 0; rank < static_cast<size_t>(world.size()); ++rank) {
    const std::string path = absl::StrCat("/proc/", places[2 * rank], "/fd/", places[2 * rank + 1]);
    const UniqueFd piece(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!piece) return absl::ErrnoToStatus(errno, absl::StrCat("cannot map the memory of rank ", rank, ": ", path));
    RETURN_IF_ERROR(memory->Map(piece.get()));
  }
  RETURN_IF_ERROR(world.Barrier());  // `own` stays open until all have opened it
  return memory;
}

absl::Status SharedMemory::Map(int descriptor) {
  const auto bytes = static_cast<size_t>(bytes_);
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED) return absl::ErrnoToStatus(errno, "mmap");
  madvise(at, bytes, MADV_HUGEPAGE);  // as the arena is
  pieces_.push_back(static_cast<std::byte*>(at));
  return absl::OkStatus();
}

SharedMemory::~SharedMemory() {
  for (std::byte* piece : pieces_) munmap(piece, static_cast<size_t>(bytes_));
}

}  // namespace gyre::bench
