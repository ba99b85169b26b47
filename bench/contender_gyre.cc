#include <string>
#include <utility>
#include <vector>

#include "contender.h"
#include "gyre/status_macros.h"

namespace gyre::bench {

namespace {

class GyreContender final : public Contender {
 public:
  GyreContender(Runtime& runtime, std::string name) : runtime_(runtime), name_(std::move(name)) {}

  std::string name() const override { return name_; }
  std::string buffers() const override { return task_.buffers == Buffers::kArena ? "arena" : "plain"; }

  absl::Status Prepare(const Task& task) override {
    task_ = task;
    arena_in_ = Buffer();  // first: both may not fit at once
    arena_out_ = Buffer();
    plain_in_.clear();
    plain_out_.clear();
    if (task.buffers == Buffers::kPlain) {
      plain_in_.resize(static_cast<size_t>(task.send_bytes()));
      plain_out_.resize(static_cast<size_t>(task.receive_bytes()));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(arena_in_, runtime_.Allocate(task.send_bytes()));
    ASSIGN_OR_RETURN(arena_out_, runtime_.Allocate(task.receive_bytes()));
    return absl::OkStatus();
  }

  bool Supports(bool in_place) const override { return in_place || task_.operation != Operation::kBroadcast; }

  Ends ends(bool in_place) override {
    const bool plain = task_.buffers == Buffers::kPlain;
    auto* const in = plain ? plain_in_.data() : static_cast<std::byte*>(arena_in_.data());
    auto* const out = plain ? plain_out_.data() : static_cast<std::byte*>(arena_out_.data());
    return EndsOf(task_, in, out, in_place);
  }

  std::optional<int64_t> bytes_sent() const override { return runtime_.bytes_sent(); }

  absl::Status Run(bool in_place) override {
    Communicator& world = runtime_.world();
    const Ends at = ends(in_place);
    const ConstTensorView in(at.send, task_.send_count(), task_.dtype);
    const TensorView out(at.result, task_.receive_count(), task_.dtype);
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
  const std::string name_;
  Task task_;
  std::vector<std::byte> plain_in_, plain_out_;
  Buffer arena_in_, arena_out_;
};

}  // namespace

std::unique_ptr<Contender> MakeGyre(Runtime& runtime, std::string name) {
  return std::make_unique<GyreContender>(runtime, std::move(name));
}

}  // namespace gyre::bench
