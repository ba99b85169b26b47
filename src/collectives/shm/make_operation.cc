#include "collectives/shm/make_operation.h"

#include <bit>
#include <span>

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

shm::Signature SignatureOf(const Call& call) {
  shm::Signature signature{.kind = static_cast<uint8_t>(call.kind)};
  if (call.kind == CallKind::kBarrier) return signature;
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
  if (call.kind == CallKind::kBroadcast || call.kind == CallKind::kReduce) signature.root = call.root;
  signature.digest = digest.value();
  return signature;
}

}  // namespace gyre::internal
