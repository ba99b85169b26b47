// Places: where in memory that can be registered a call's tensors lie. NCCL takes registered memory of all ranks, at
// the same places, or of none.
#pragma once

#include <cstdint>

#include "collectives/call.h"
#include "collectives/nccl/memory.h"

namespace gyre::internal::nccl {

// Of one tensor; plain data, for it travels as it is.
struct Place {
  int64_t bytes = 0;   // of the piece; 0: it is in none
  int64_t offset = 0;  // in the piece

  friend bool operator==(const Place&, const Place&) = default;
};

struct Places {
  Place in = {};
  Place out = {};

  // Where all ranks have these same, their memory can be registered.
  bool registrable() const { return in.bytes > 0 && out.bytes > 0; }

  friend bool operator==(const Places&, const Places&) = default;
};

// A segment that lies in its place of the whole is where that is. None for a reduce, whose output only one rank has,
// and for what NCCL is given by way of scratch memory.
Places PlacesOf(const Call& call, int rank, const Memory& memory);

}  // namespace gyre::internal::nccl
