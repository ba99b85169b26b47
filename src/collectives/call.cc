#include "collectives/call.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckView(const char* name, const ConstTensorView& view) {
  const auto& [data, count, dtype, device] = view;
  if (device.gpu < -1) return Wrong(name, " is on GPU ", device.gpu, ", which cannot be");
  if (IsPerThread(device)) return Wrong(name, " is on ", kPerThreadText);
  if (static_cast<int>(dtype) >= kDTypeCount) return Wrong(name, " has an unknown dtype");
  if (count < 0) return Wrong(name, " has a negative count (", count, ")");
  if (count > std::numeric_limits<int64_t>::max() / 8) return Wrong(name, " has an impossible count (", count, ")");
  if (count > 0 && data == nullptr) return Wrong(name, " has ", count, " elements at a null pointer");
  return absl::OkStatus();
}

std::string Text(const Device& device) {
  return device.on_gpu() ? absl::StrCat("GPU ", device.gpu) : "the host";
}

absl::Status CheckDevices(const Call& call) {
  if (call.in.count == 0 || call.out.count == 0 || call.in.device.gpu == call.out.device.gpu) return absl::OkStatus();
  return Wrong("input (on ", Text(call.in.device), ") and output (on ", Text(call.out.device),
               ") must be on one device");
}

absl::Status CheckCount(const char* name, int64_t count, int64_t expected) {
  if (count == expected) return absl::OkStatus();
  return Wrong(name, " has ", count, " elements; ", expected, " expected");
}

absl::Status CheckRank(const char* name, int rank, int size) {
  if (rank >= 0 && rank < size) return absl::OkStatus();
  return Wrong(name, " ", rank, " is not a rank of this communicator of ", size);
}

// And in the same place.
absl::Status CheckSameType(const Call& call) {
  RETURN_IF_ERROR(CheckDevices(call));
  if (call.in.dtype == call.out.dtype) return absl::OkStatus();
  return Wrong("input (", ToAbsl(DTypeName(call.in.dtype)), ") and output (", ToAbsl(DTypeName(call.out.dtype)),
               ") differ in dtype");
}

bool Overlap(const ConstTensorView& in, const TensorView& out) {
  if (in.count == 0 || out.count == 0) return false;
  const auto from = reinterpret_cast<uintptr_t>(in.data), to = reinterpret_cast<uintptr_t>(out.data);
  return from < to ? static_cast<uintptr_t>(in.bytes()) > to - from : static_cast<uintptr_t>(out.bytes()) > from - to;
}

// Input and output must not overlap, unless the call is in place. `how`: what makes it so.
absl::Status CheckApart(const Call& call, bool in_place, const char* how) {
  if (in_place || !Overlap(call.in, call.out)) return absl::OkStatus();
  const auto from = reinterpret_cast<uintptr_t>(call.in.data), to = reinterpret_cast<uintptr_t>(call.out.data);
  const char* const first = from < to ? "input" : "output";
  const char* const second = from < to ? "output" : "input";
  return Wrong("input and output overlap: the ", second, " begins ", from < to ? to - from : from - to,
               " bytes after the ", first, ", which has ", from < to ? call.in.bytes() : call.out.bytes(),
               "; use separate buffers, or ", how);
}

// Whether `data` is where a rank's segment of `all` begins.
bool IsSegment(const void* data, const ConstTensorView& all, std::span<const int64_t> counts, int rank) {
  const int64_t begin = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  return data == static_cast<const char*>(all.data) + begin * DTypeSize(all.dtype);
}

absl::Status CheckReduction(const Call& call) {
  if (call.op == ReduceOp::kAdasum && (call.kind != CallKind::kAllReduce || !IsFloat(call.in.dtype))) {
    return Wrong("adasum is of allreduce on floating-point tensors only");
  }
  if (static_cast<int>(call.op) >= kReduceOpCount && call.op != ReduceOp::kAdasum) return Wrong("unknown reduction");
  if (call.op == ReduceOp::kAverage && call.in.dtype == DType::kBool) return Wrong("booleans have no average");
  if ((call.prescale != 1.0 || call.postscale != 1.0) && !IsFloat(call.in.dtype)) {
    return Wrong("prescale and postscale apply to floating-point tensors only, not to ",
                 ToAbsl(DTypeName(call.in.dtype)));
  }
  return absl::OkStatus();
}

// Counts by rank: `size` of them, none negative, together `total`.
absl::Status CheckCounts(const char* name, std::span<const int64_t> counts, int size, const char* what, int64_t total) {
  if (static_cast<int>(counts.size()) != size) {
    return Wrong(name, " has ", counts.size(), " entries; one for each of ", size, " ranks expected");
  }
  int64_t sum = 0;
  for (int64_t count : counts) {
    if (count < 0) return Wrong(name, " has a negative entry (", count, ")");
    if (count > std::numeric_limits<int64_t>::max() / 8 - sum) return Wrong(name, " adds up to too much");
    sum += count;
  }
  return CheckCount(what, total, sum);
}

absl::Status ValidateMessage(const Call& call, int rank, int size) {
  RETURN_IF_ERROR(CheckRank(call.send ? "destination" : "source", call.peer, size));
  if (call.peer == rank) return Wrong("a rank cannot send to itself");
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const Call& call, int rank, int size) {
  RETURN_IF_ERROR(CheckView("input", call.in));
  RETURN_IF_ERROR(CheckView("output", call.out));
  const auto me = static_cast<size_t>(rank);
  if (call.timeout && call.timeout->count() <= 0) return Wrong("the timeout must be positive");
  switch (call.kind) {
    case CallKind::kAllReduce:
      RETURN_IF_ERROR(CheckSameType(call));
      RETURN_IF_ERROR(CheckReduction(call));
      RETURN_IF_ERROR(CheckCount("output", call.out.count, call.in.count));
      return CheckApart(call, call.in.data == call.out.data, "one buffer for both");
    case CallKind::kReduceScatter:
      RETURN_IF_ERROR(CheckSameType(call));
      RETURN_IF_ERROR(CheckReduction(call));
      RETURN_IF_ERROR(CheckCounts("counts", call.counts, size, "input", call.in.count));
      RETURN_IF_ERROR(CheckCount("output", call.out.count, call.counts[me]));
      return CheckApart(call, IsSegment(call.out.data, call.in, call.counts, rank),
                        "this rank's segment of the input as the output");
    case CallKind::kAllGather:
      RETURN_IF_ERROR(CheckSameType(call));
      RETURN_IF_ERROR(CheckCounts("counts", call.counts, size, "output", call.out.count));
      RETURN_IF_ERROR(CheckCount("input", call.in.count, call.counts[me]));
      return CheckApart(call, IsSegment(call.in.data, call.out, call.counts, rank),
                        "this rank's segment of the output as the input");
    case CallKind::kBroadcast: return CheckRank("root", call.root, size);
    case CallKind::kReduce:
      RETURN_IF_ERROR(CheckRank("root", call.root, size));
      RETURN_IF_ERROR(CheckReduction(call));
      if (rank != call.root) return absl::OkStatus();
      RETURN_IF_ERROR(CheckSameType(call));
      RETURN_IF_ERROR(CheckCount("output", call.out.count, call.in.count));
      return CheckApart(call, call.in.data == call.out.data, "one buffer for both");
    case CallKind::kAllToAll:
      RETURN_IF_ERROR(CheckSameType(call));
      RETURN_IF_ERROR(CheckCounts("send counts", call.counts, size, "input", call.in.count));
      RETURN_IF_ERROR(CheckCounts("receive counts", call.receive_counts, size, "output", call.out.count));
      return CheckApart(call, call.in.data == call.out.data && std::ranges::equal(call.counts, call.receive_counts),
                        "one buffer for both, with equal send and receive counts");
    case CallKind::kBarrier: return absl::OkStatus();
    case CallKind::kMessage: return ValidateMessage(call, rank, size);
    case CallKind::kRefused: break;
  }
  return Wrong("unknown operation");
}

bool IsPerThread(const Device& device) {
  return device.on_gpu() && reinterpret_cast<uintptr_t>(device.stream) == 2;
}

const Device& DeviceOf(const Call& call) {
  if (call.kind == CallKind::kReduce) return call.in.device;
  return call.in.device.on_gpu() ? call.in.device : call.out.device;
}

device::Reduction ReductionOf(const Call& call, int size) {
  return device::MakeReduction(call.in.dtype, call.op, call.prescale, call.postscale, size);
}

RankCounts Displacements(std::span<const int64_t> counts) {
  RankCounts begins(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), int64_t{0});
  return begins;
}

int64_t LongestOf(std::span<const int64_t> counts) {
  return *std::ranges::max_element(counts);
}

}  // namespace gyre::internal
