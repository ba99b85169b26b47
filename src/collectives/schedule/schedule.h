// Schedule: a collective between hosts as data. The executor runs it over any transport; tests prove it for every
// number of ranks; the simulator prices it.
#pragma once

#include <cstdint>
#include <vector>

namespace gyre::internal {

// One thing that one rank does with one block of its buffer. Blocks are contiguous, disjoint, of any size (empty too),
// and numbered alike on all ranks; the caller says where they lie.
struct Step {
  enum class Kind : uint8_t {
    kSend,           // the block to `peer`
    kReceive,        // the block from `peer`, replacing what was there
    kReceiveReduce,  // the block from `peer`, combined with what was there
  };
  Kind kind;
  int peer;   // a rank of the schedule
  int block;  // the sender's and the receiver's step name the same one, but in alltoall

  friend bool operator==(const Step&, const Step&) = default;
};

// The program of one rank. What its order means:
//   - the sends to a peer happen in their order, and so do the receives from it; the n-th send of a to b is the n-th
//     receive of b from a;
//   - steps on the same block happen in their order, byte by byte: a step goes as far as the one before it on that
//     block has come, and so a block is sent on while it still arrives. Of an empty block, a step begins when the one
//     before has ended;
//   - all else may overlap.
// A transport that holds a few KiB for each direction of each pair suffices to run it.
struct Schedule {
  int blocks = 0;
  std::vector<Step> steps;
};

}  // namespace gyre::internal
