#include "collectives/gpu_alone.h"

#include <array>
#include <utility>

#include "base/status.h"

namespace gyre::internal {

namespace {

// What becomes of the elements of a rank without others. Adasum of one is that one.
device::Reduction ReductionOf(const Call& call) {
  if (call.kind != CallKind::kAllReduce && call.kind != CallKind::kReduce && call.kind != CallKind::kReduceScatter) {
    return {.dtype = call.in.dtype};
  }
  const ReduceOp op = call.op == ReduceOp::kAdasum ? ReduceOp::kSum : call.op;
  return device::MakeReduction(call.in.dtype, op, call.prescale, call.postscale, 1);
}

absl::Status Queue(const GpuCall& gpu_call) {
  const Call& call = gpu_call.call;
  device::Gpu& gpu = *gpu_call.gpu;
  if (gpu_call.replays()) return gpu_call.manner.graph->Launch(call.out.device.stream);
  if (call.in.count == 0) return absl::OkStatus();
  const bool two_streams = call.in.device.stream != call.out.device.stream;
  void* const stream = call.out.device.stream;
  if (two_streams) RETURN_IF_ERROR(gpu.Wait(stream, gpu_call.input_ready));
  const device::Reduction reduction = ReductionOf(call);
  if (reduction.scale_source != 1 || reduction.scale_result != 1) {
    const std::array<const void*, 1> from = {call.in.data};
    const std::array<void*, 1> to = {call.out.data};
    RETURN_IF_ERROR(gpu.Reduce(reduction, from, to, call.in.count, stream));
  } else if (call.in.data != call.out.data) {
    RETURN_IF_ERROR(gpu.Copy(call.out.data, call.in.data, call.in.bytes(), stream));
  }
  if (!two_streams) return absl::OkStatus();
  RETURN_IF_ERROR(gpu.Record(gpu_call.input_ready, stream));  // the input may be written again once it was read
  return gpu.Wait(call.in.device.stream, gpu_call.input_ready);
}

class Queued final : public Pollable {
 public:
  explicit Queued(absl::Status status) { status_ = std::move(status); }
  shm::Progress Poll() override { return shm::Progress::kDone; }
  bool Check(TimePoint /*now*/) override { return true; }
  void StartClock(TimePoint /*now*/) override {}
  TimePoint deadline() const override { return TimePoint::max(); }
};

}  // namespace

std::shared_ptr<Pollable> GpuAlone::Make(const GpuCall& call) {
  return std::make_shared<Queued>(Queue(call));
}

}  // namespace gyre::internal
