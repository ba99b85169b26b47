#include <utility>

#include "gpu/collective.h"
#include "gpu/mirrored.h"
#include "gyre/status_macros.h"

namespace gyre::bench::gpu {

namespace {

class GyreOnGpu final : public Contender {
 public:
  GyreOnGpu(Runtime& runtime, int gpu, Stream stream)
      : runtime_(runtime), device_{.gpu = gpu, .stream = stream.get()}, stream_(std::move(stream)) {}

  std::string name() const override { return "gyre"; }
  std::string buffers() const override { return task_.buffers == Buffers::kArena ? "arena" : "plain"; }

  absl::Status Prepare(const Task& task) override {
    task_ = task;
    arena_in_ = Buffer();  // first: both may not fit at once
    arena_out_ = Buffer();
    plain_in_ = Memory();
    plain_out_ = Memory();
    if (task.buffers == Buffers::kPlain) {
      ASSIGN_OR_RETURN(plain_in_, Memory::Make(task.send_bytes()));
      ASSIGN_OR_RETURN(plain_out_, Memory::Make(task.receive_bytes()));
      mirrored_.Attach(task, plain_in_.data(), plain_out_.data());
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(arena_in_, runtime_.Allocate(task.send_bytes(), device_));
    ASSIGN_OR_RETURN(arena_out_, runtime_.Allocate(task.receive_bytes(), device_));
    mirrored_.Attach(task, static_cast<std::byte*>(arena_in_.data()), static_cast<std::byte*>(arena_out_.data()));
    return absl::OkStatus();
  }

  bool Supports(bool in_place) const override { return in_place || task_.operation != Operation::kBroadcast; }
  Ends ends(bool in_place) override { return mirrored_.on_host(in_place); }
  absl::Status Upload(bool /*in_place*/) override { return mirrored_.Upload(); }
  absl::Status Download(bool /*in_place*/) override { return mirrored_.Download(); }
  absl::Status Finish() override { return stream_.Synchronize(); }
  std::optional<int64_t> bytes_sent() const override { return runtime_.bytes_sent(); }

  absl::Status Run(bool in_place) override {
    Communicator& world = runtime_.world();
    const Ends at = mirrored_.on_gpu(in_place);
    const ConstTensorView in(at.send, task_.send_count(), task_.dtype, device_);
    const TensorView out(at.result, task_.receive_count(), task_.dtype, device_);
    switch (task_.operation) {
      case Operation::kAllReduce: return world.AllReduce(in, out, {.op = task_.op});
      case Operation::kReduceScatter: return world.ReduceScatter(in, out, {.op = task_.op});
      case Operation::kAllGather: return world.AllGather(in, out);
      case Operation::kBroadcast: return world.Broadcast(out, task_.root);
      case Operation::kAllToAll: return world.AllToAll(in, out);
      case Operation::kCopy: break;
    }
    return absl::UnimplementedError("Gyre has no such operation");
  }

 private:
  Runtime& runtime_;
  const Device device_;
  const Stream stream_;
  Task task_;
  Memory plain_in_, plain_out_;
  Buffer arena_in_, arena_out_;
  Mirrored mirrored_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contender>> MakeGyreOnGpu(Runtime& runtime, int gpu) {
  ASSIGN_OR_RETURN(Stream stream, Stream::Make());
  return std::make_unique<GyreOnGpu>(runtime, gpu, std::move(stream));
}

}  // namespace gyre::bench::gpu
