// SharedMemory: a piece of every rank's memory that all ranks of a host have mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "gyre/communicator.h"

namespace gyre::bench {

class SharedMemory {
 public:
  // All ranks call it alike, with the bytes of a piece. kFailedPrecondition where they are on several hosts.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(Communicator& world, int64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Where this process sees the piece of `rank`.
  std::byte* of(int rank) const { return pieces_[static_cast<size_t>(rank)]; }

 private:
  explicit SharedMemory(int64_t bytes) : bytes_(bytes) {}
  absl::Status Map(int descriptor);

  const int64_t bytes_;
  std::vector<std::byte*> pieces_;  // by rank
};

}  // namespace gyre::bench
