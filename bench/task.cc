#include "task.h"

#include <algorithm>

namespace gyre::bench {

namespace {

// Whether the input, or the result, has a segment for each rank.
bool SendsSegments(Operation operation) {
  return operation == Operation::kReduceScatter || operation == Operation::kAllToAll;
}

bool ReceivesSegments(Operation operation) {
  return operation == Operation::kAllGather || operation == Operation::kAllToAll;
}

}  // namespace

std::string_view OperationName(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce: return "allreduce";
    case Operation::kReduceScatter: return "reduce_scatter";
    case Operation::kAllGather: return "allgather";
    case Operation::kBroadcast: return "broadcast";
    case Operation::kAllToAll: return "alltoall";
    case Operation::kCopy: return "copy";
  }
  return "";
}

bool Reduces(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduceScatter;
}

bool HasRoot(Operation operation) {
  return operation == Operation::kBroadcast;
}

int64_t Task::send_count() const {
  return SendsSegments(operation) ? count * ranks : count;
}

int64_t Task::receive_count() const {
  return ReceivesSegments(operation) ? count * ranks : count;
}

int64_t Task::bytes() const {
  return std::max(send_bytes(), receive_bytes());
}

int64_t CountFor(Operation operation, int64_t bytes, DType dtype, int ranks) {
  const bool segments = SendsSegments(operation) || ReceivesSegments(operation);
  return std::max<int64_t>(1, bytes / DTypeSize(dtype) / (segments ? ranks : 1));
}

double BusFactor(Operation operation, int ranks) {
  const double n = ranks;
  switch (operation) {
    case Operation::kAllReduce: return 2 * (n - 1) / n;
    case Operation::kReduceScatter:
    case Operation::kAllGather:
    case Operation::kAllToAll: return (n - 1) / n;
    case Operation::kBroadcast: return 1;
    case Operation::kCopy: return n;
  }
  return 1;
}

Ends EndsOf(const Task& task, std::byte* in, std::byte* out, bool in_place) {
  if (!in_place) return {in, out};
  const int64_t segment = task.rank * task.count * DTypeSize(task.dtype);
  if (task.operation == Operation::kReduceScatter) return {in, in + segment};
  if (task.operation == Operation::kAllGather) return {out + segment, out};
  return {out, out};
}

}  // namespace gyre::bench
