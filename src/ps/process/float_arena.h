// FloatArena: memory for floats that another process of this host may read where they lie. What is not needed any more
// is made again: new memory costs as much as a copy. Not thread-safe; one thread holds all that is made here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "net/bytes.h"
#include "ps/floats.h"
#include "transport/shm/segment.h"

namespace gyre::ps {

class FloatArena {
 public:
  // Address space for `bytes` of floats at most; memory is taken as it is used.
  static absl::StatusOr<FloatArena> Create(int64_t bytes);

  // Of this memory, or, once that is used up, of the process's own. May outlive the arena.
  Floats Make(size_t count);

  // Where floats that were made here lie, in bytes from the beginning; nothing for others.
  std::optional<uint64_t> OffsetOf(Bytes floats) const;

  // What another process needs to find it: kOffer of docs/wire_format.md.
  const std::string& offer() const { return offer_; }

 private:
  struct Pool;
  FloatArena(std::shared_ptr<Pool> pool, std::string offer) : pool_(std::move(pool)), offer_(std::move(offer)) {}

  std::shared_ptr<Pool> pool_;
  std::string offer_;
};

// Another process's arena, mapped here.
class MappedArena {
 public:
  // kInvalidArgument: malformed. Another error: it cannot be reached from here, which is so for processes of other
  // hosts or containers.
  static absl::StatusOr<std::shared_ptr<const MappedArena>> Map(std::string_view offer);

  MappedArena(shm::Segment segment, UniqueFd process) : segment_(std::move(segment)), process_(std::move(process)) {}

  // Whose it is: a pidfd, or -1.
  int process() const { return process_.get(); }

  // So many floats there, or null if they are not.
  float* At(uint64_t offset, size_t count) const;

 private:
  const shm::Segment segment_;
  const UniqueFd process_;
};

}  // namespace gyre::ps
