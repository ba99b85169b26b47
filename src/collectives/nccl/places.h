// Places: where in memory that can be registered a call's tensors lie, what the ranks of one host tell each other of it
// before the call, and what they conclude. NCCL takes registered memory of all ranks, at the same places, or of none.
#pragma once

#include <cstdint>
#include <span>

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

  friend bool operator==(const Places&, const Places&) = default;
};

// A segment that lies in its place of the whole is where that is; the output of a reduce is the root's, and elsewhere
// where the input is. None for what NCCL is given by way of scratch memory.
Places PlacesOf(const Call& call, int rank, const Memory& memory);

// What a rank tells the others; plain data too.
struct Told {
  Places places = {};
  int64_t registered = 0;  // 1: one of its tensors is
  int64_t scratch = 0;     // 1: it needs memory in any case (ScratchBytes)
  int64_t largest = 0;     // LargestTransfer
};

struct Conclusion {
  bool registers = false;     // the memory of all ranks is registered, if it is not yet
  bool detours = false;       // some give what they have registered by way of other memory, all in rounds (detour.h)
  bool takes_memory = false;  // on some ranks
  int64_t largest = 0;        // on any rank
};

// `told`: by rank; the same on all of them.
Conclusion Conclude(CallKind kind, std::span<const Told> told);

}  // namespace gyre::internal::nccl
