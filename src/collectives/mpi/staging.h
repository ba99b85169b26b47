// The memory that MPI works on: copies of pieces of the user's buffers, so that MPI, which cannot give up a collective,
// never holds memory of the user's; in types that MPI knows, scaled as the call says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/call.h"
#include "gyre/tensor.h"

namespace gyre::internal::mpi {

struct Staging {
  std::vector<std::byte> in, out;
  std::vector<int> in_counts, in_begins, out_counts, out_begins;  // of segments
};

// What MPI reduces in place of the call's dtype and operation: half types as floats, booleans as bytes of 0 and 1.
DType ReducedType(DType dtype);
ReduceOp ReducedOp(DType dtype, ReduceOp op);

// `count` elements of the call's dtype at `from`, times its prescale, to staged ones of ReducedType at `to`.
void Stage(const Call& call, const void* from, int64_t count, std::byte* to);

// And back, with what the call's average and postscale do to the result over `ranks` ranks.
void Unstage(const Call& call, int ranks, const std::byte* from, int64_t count, void* to);

}  // namespace gyre::internal::mpi
