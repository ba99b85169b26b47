#include "collectives/nccl/plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "collectives/nccl/factory.h"

namespace gyre::internal::nccl {

namespace {

bool Reduces(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kReduce || kind == CallKind::kReduceScatter;
}

bool IsHalf(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

bool IsFloat(DType dtype) {
  return IsHalf(dtype) || dtype == DType::kF32 || dtype == DType::kF64;
}

bool IsPowerOfTwo(int number) {
  return (number & (number - 1)) == 0;
}

const void* At(const void* data, int64_t element, DType dtype) {
  return static_cast<const char*>(data) + element * DTypeSize(dtype);
}
void* At(void* data, int64_t element, DType dtype) {
  return static_cast<char*>(data) + element * DTypeSize(dtype);
}

// How NCCL combines, and what is left to do to the result.
struct Combining {
  DType dtype;
  Combination combination;
  device::Reduction rest;

  bool finishes() const { return rest.scale_result != 1.0 || rest.divisor != 1; }
};

bool IsPowerOfTwo(double number) {
  int exponent = 0;
  return std::fabs(std::frexp(number, &exponent)) == 0.5;
}

// Sums of f16 overflow soon: of a scale below 1 the power of two comes before them, whichever side it was asked for on.
void ScaleEarly(double scale, Combining& combining) {
  int exponent = 0;
  const double rest = 2 * std::frexp(scale, &exponent);  // in [1, 2), or the negative
  --exponent;
  const bool early = exponent < 0 && exponent >= -14;
  if (early) combining.combination.scale = std::ldexp(1.0, exponent);
  combining.rest.scale_result = early ? rest : scale;
}

// NCCL takes an input's scale in the tensor's own dtype: of the half types, only a power of two is what was asked for.
void ScaleSum(const device::Reduction& reduction, Combining& combining) {
  const double both = reduction.scale_source * reduction.scale_result;
  if (both == 1.0 && reduction.scale_source == 1.0) return;
  if (combining.dtype == DType::kF16) return ScaleEarly(both, combining);
  const bool exact = combining.dtype != DType::kBF16 || IsPowerOfTwo(reduction.scale_source);
  if (exact) combining.combination.scale = reduction.scale_source;
  combining.rest.scale_result = exact ? reduction.scale_result : both;
}

// A scale before min, max or product is one after it.
double Late(ReduceOp op, const device::Reduction& reduction, int size) {
  return reduction.scale_result *
         (op == ReduceOp::kProduct ? std::pow(reduction.scale_source, size) : reduction.scale_source);
}

Combining CombiningOf(const Call& call, int size) {
  const device::Reduction reduction = ReductionOf(call, size);
  Combining result{.dtype = call.in.dtype,
                   .combination = {.op = call.op},
                   .rest = {.dtype = call.in.dtype, .divisor = reduction.divisor}};
  const bool scaled = call.prescale != 1.0 || call.postscale != 1.0;
  if (call.in.dtype == DType::kBool) {  // bytes of 0 and 1
    const bool conjunction = call.op == ReduceOp::kMin || call.op == ReduceOp::kProduct;
    result.dtype = DType::kU8;
    result.combination.op = conjunction ? ReduceOp::kMin : ReduceOp::kMax;
    return result;
  }
  switch (call.op) {
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      result.rest.scale_result = Late(call.op, reduction, size);
      if (reduction.scale_source < 0) {
        result.combination.op = call.op == ReduceOp::kMin ? ReduceOp::kMax : ReduceOp::kMin;
      }
      return result;
    case ReduceOp::kProduct: result.rest.scale_result = Late(call.op, reduction, size); return result;
    case ReduceOp::kAverage:
      if (!scaled && IsFloat(call.in.dtype) && (!IsHalf(call.in.dtype) || IsPowerOfTwo(size))) return result;
      break;
    default: break;
  }
  result.combination.op = ReduceOp::kSum;
  ScaleSum(reduction, result);
  return result;
}

class Planner {
 public:
  Planner(const Call& call, int rank, int size, void* scratch, bool by_segments)
      : call_(call),
        rank_(rank),
        size_(size),
        scratch_(scratch),
        by_segments_(by_segments),
        combining_(CombiningOf(call, size)) {}

  Plan Make() {
    switch (call_.kind) {
      case CallKind::kAllReduce: AllReduce(); break;
      case CallKind::kReduce: Reduce(); break;
      case CallKind::kReduceScatter: ReduceScatter(); break;
      case CallKind::kAllGather: AllGather(); break;
      case CallKind::kBroadcast: Broadcast(); break;
      case CallKind::kAllToAll: AllToAll(); break;
      default: break;
    }
    return std::move(plan_);
  }

 private:
  bool AsOne() const {
    return !by_segments_ &&
           std::ranges::all_of(call_.counts, [this](int64_t count) { return count == call_.counts[0]; });
  }

  // Nothing is not worth a call; NCCL's counts are the same on all ranks, and so is what is left out.
  void Add(Transfer transfer) {
    if (transfer.count > 0) plan_.group.push_back(transfer);
  }

  // Whole elements of what only moves are bytes.
  Transfer Moving(Transfer::Kind kind, const void* in, void* out, int64_t count, int root = 0) const {
    return {.kind = kind, .in = in, .out = out, .count = count * DTypeSize(call_.in.dtype), .root = root};
  }

  Transfer Reducing(Transfer::Kind kind, const void* in, void* out, int64_t count, int root = 0) const {
    return {.kind = kind,
            .in = in,
            .out = out,
            .count = count,
            .dtype = combining_.dtype,
            .combination = combining_.combination,
            .root = root};
  }

  void Finish() {
    if (!combining_.finishes() || call_.out.count == 0) return;
    plan_.finished = call_.out;
    plan_.finish = combining_.rest;
  }

  void AllReduce() {
    Add(Reducing(Transfer::Kind::kAllReduce, call_.in.data, call_.out.data, call_.in.count));
    Finish();
  }

  void Reduce() {
    const bool root = rank_ == call_.root;
    Add(Reducing(Transfer::Kind::kReduce, call_.in.data, root ? call_.out.data : nullptr, call_.in.count, call_.root));
    if (root) Finish();
  }

  void ReduceScatter() {
    if (AsOne()) {
      Add(Reducing(Transfer::Kind::kReduceScatter, call_.in.data, call_.out.data, call_.counts[0]));
    } else {
      const RankCounts begins = Displacements(call_.counts);
      for (int r = 0; r < size_; ++r) {
        Add(Reducing(Transfer::Kind::kReduce, At(call_.in.data, begins[Index(r)], call_.in.dtype),
                     r == rank_ ? call_.out.data : nullptr, call_.counts[Index(r)], r));
      }
    }
    Finish();
  }

  void AllGather() {
    if (AsOne()) {
      Add(Moving(Transfer::Kind::kAllGather, call_.in.data, call_.out.data, call_.counts[0]));
      return;
    }
    const RankCounts begins = Displacements(call_.counts);
    for (int r = 0; r < size_; ++r) {
      void* const segment = At(call_.out.data, begins[Index(r)], call_.in.dtype);
      Add(Moving(Transfer::Kind::kBroadcast, r == rank_ ? call_.in.data : segment, segment, call_.counts[Index(r)], r));
    }
  }

  void Broadcast() {
    Add(Moving(Transfer::Kind::kBroadcast, call_.out.data, call_.out.data, call_.out.count, call_.root));
  }

  // Sent from a copy where what comes would overwrite it.
  void AllToAll() {
    const void* from = call_.in.data;
    if (ScratchBytes(call_) > 0) {
      plan_.copy_from = std::exchange(from, scratch_);
      plan_.copy_bytes = call_.in.bytes();
    }
    const RankCounts sent = Displacements(call_.counts), received = Displacements(call_.receive_counts);
    for (int r = 0; r < size_; ++r) {
      Add(Moving(Transfer::Kind::kSend, At(from, sent[Index(r)], call_.in.dtype), nullptr, call_.counts[Index(r)], r));
      Add(Moving(Transfer::Kind::kReceive, nullptr, At(call_.out.data, received[Index(r)], call_.in.dtype),
                 call_.receive_counts[Index(r)], r));
    }
  }

  static size_t Index(int rank) { return static_cast<size_t>(rank); }

  const Call& call_;
  const int rank_, size_;
  void* const scratch_;
  const bool by_segments_;
  const Combining combining_;
  Plan plan_;
};

}  // namespace

bool Takes(const Call& call) {
  switch (call.kind) {
    case CallKind::kBarrier:
    case CallKind::kMessage:
    case CallKind::kRefused: return false;
    default: break;
  }
  if (!Reduces(call.kind)) return true;
  return call.op != ReduceOp::kAdasum && call.in.dtype != DType::kI16 && call.in.dtype != DType::kU16;
}

int64_t ScratchBytes(const Call& call) {
  return call.kind == CallKind::kAllToAll && call.in.data == call.out.data ? call.in.bytes() : 0;
}

int64_t LargestTransfer(const Call& call) {
  int64_t count = 0;
  for (const auto& counts : {call.counts, call.receive_counts}) {
    for (const int64_t each : counts) count = std::max(count, each);
  }
  if (call.counts.empty()) count = call.kind == CallKind::kBroadcast ? call.out.count : call.in.count;
  return count * DTypeSize(call.in.dtype);
}

Plan PlanOf(const Call& call, int rank, int size, void* scratch, bool by_segments) {
  return Planner(call, rank, size, scratch, by_segments).Make();
}

}  // namespace gyre::internal::nccl
