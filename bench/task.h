// Task: what one row of the benchmark asks every rank to do, in the terms of nccl-tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gyre/tensor.h"

namespace gyre::bench {

// kCopy is no collective: every rank copies its own input, to show what the memory can do.
enum class Operation { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll, kCopy };

std::string_view OperationName(Operation operation);  // "allreduce", "reduce_scatter", ...
bool Reduces(Operation operation);
bool HasRoot(Operation operation);

enum class Buffers { kArena, kPlain };

struct Task {
  Operation operation = Operation::kAllReduce;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;  // where the operation reduces
  int root = 0;                  // where it has one
  int rank = 0;                  // which rank this is
  int ranks = 1;
  int64_t count = 0;                  // elements; of one rank's segment where buffers have a segment a rank
  Buffers buffers = Buffers::kArena;  // where Gyre's lie; others take memory of their own

  int64_t send_count() const;     // elements of a rank's input
  int64_t receive_count() const;  // and of its result
  int64_t send_bytes() const { return send_count() * DTypeSize(dtype); }
  int64_t receive_bytes() const { return receive_count() * DTypeSize(dtype); }
  int64_t bytes() const;  // the size column: of the longer of the two
};

// The count of a task whose size column is `bytes`, rounded down to whole elements; at least 1.
int64_t CountFor(Operation operation, int64_t bytes, DType dtype, int ranks);

// What algbw is multiplied with for busbw: nccl-tests' factors, which make it the speed of the slowest link that any
// algorithm needs. For kCopy the number of ranks: busbw is what all of them copy together.
double BusFactor(Operation operation, int ranks);

// Where a rank's input begins before a call, and its result after it.
struct Ends {
  std::byte* send;
  std::byte* result;
};

// NCCL's convention, which is Gyre's, for an input buffer `in` of send_bytes and an output buffer `out` of
// receive_bytes: in place, a part is this rank's segment of the whole.
Ends EndsOf(const Task& task, std::byte* in, std::byte* out, bool in_place);

}  // namespace gyre::bench
