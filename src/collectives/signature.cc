// Signatures of calls, and calls in words.
#include <bit>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/call.h"

namespace gyre::internal {

namespace {

// FNV-1a over words: tells apart calls that differ by mistake, which is all it is for.
class Digest {
 public:
  void Add(uint64_t word) { value_ = (value_ ^ word) * 0x100000001b3; }
  void Add(double number) { Add(std::bit_cast<uint64_t>(number)); }
  void Add(std::span<const int64_t> numbers) {
    for (int64_t number : numbers) Add(static_cast<uint64_t>(number));
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

bool Reduces(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kReduce || kind == CallKind::kReduceScatter;
}

}  // namespace

Signature SignatureOf(const Call& call) {
  if (call.part_of != nullptr) {
    Signature whole = *call.part_of;
    Digest digest;
    digest.Add(whole.digest);
    if (call.relayed) digest.Add(call.counts);
    whole.digest = digest.value();
    return whole;
  }
  Signature signature{.kind = static_cast<uint8_t>(call.kind)};
  if (call.kind == CallKind::kBarrier) return signature;
  signature.device = DeviceOf(call).on_gpu() ? 1 : 0;
  const bool receives = call.kind == CallKind::kMessage && !call.send;
  signature.dtype = static_cast<uint8_t>(receives ? call.out.dtype : call.in.dtype);
  signature.count = receives ? call.out.count : call.in.count;
  Digest digest;
  if (Reduces(call.kind)) {
    signature.op = static_cast<uint8_t>(call.op);
    digest.Add(call.prescale);
    digest.Add(call.postscale);
  }
  if (call.kind == CallKind::kReduceScatter) digest.Add(call.counts);
  if (call.kind == CallKind::kAllGather) {
    signature.count = call.out.count;  // the whole: segments may differ
    digest.Add(call.counts);
  }
  if (call.kind == CallKind::kAllToAll) signature.count = 0;  // may differ; the plans tell
  if (call.relayed) digest.Add(call.counts);                  // but not of what others relay
  if (call.kind == CallKind::kBroadcast || call.kind == CallKind::kReduce) signature.root = call.root;
  signature.digest = digest.value();
  return signature;
}

std::string Describe(const Signature& signature) {
  const auto kind = static_cast<CallKind>(signature.kind);
  const char* const where = signature.device != 0 ? " on a GPU" : "";
  const std::string elements =
      absl::StrCat(ToAbsl(DTypeName(static_cast<DType>(signature.dtype))), ", ", signature.count, " elements", where);
  const std::string reduction = absl::StrCat(elements, ", ", ToAbsl(ReduceOpName(static_cast<ReduceOp>(signature.op))));
  switch (kind) {
    case CallKind::kAllReduce: return absl::StrCat("allreduce(", reduction, ")");
    case CallKind::kReduceScatter: return absl::StrCat("reduce_scatter(", reduction, ")");
    case CallKind::kAllGather: return absl::StrCat("allgather(", elements, ")");
    case CallKind::kBroadcast: return absl::StrCat("broadcast(", elements, ", root ", signature.root, ")");
    case CallKind::kReduce: return absl::StrCat("reduce(", reduction, ", root ", signature.root, ")");
    case CallKind::kAllToAll:
      return absl::StrCat("alltoall(", ToAbsl(DTypeName(static_cast<DType>(signature.dtype))), where, ")");
    case CallKind::kBarrier: return "barrier()";
    case CallKind::kMessage: return absl::StrCat("send/receive(", elements, ")");
    case CallKind::kRefused: return "refused call";
  }
  return absl::StrCat("unknown operation ", signature.kind);
}

std::string Disagreement(const std::string& one, const Signature& ones, const std::string& other,
                         const Signature& others) {
  const std::string first = Describe(ones), second = Describe(others);
  return absl::StrCat("ranks disagree about a call: ", one, " called ", first, ", ", other, " called ", second,
                      first == second ? "; their scales or their counts by rank differ" : "");
}

}  // namespace gyre::internal
