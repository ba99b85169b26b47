#include <vector>

#include "contender.h"
#include "gyre/status_macros.h"

namespace gyre::bench {

namespace {

class GyreContender final : public Contender {
 public:
  explicit GyreContender(Runtime& runtime) : runtime_(runtime) {}

  std::string name() const override { return "gyre"; }

  absl::Status Prepare(const AllReduceTask& task) override {
    task_ = task;
    const int64_t bytes = task.count * DTypeSize(task.dtype);
    arena_in_ = Buffer();  // first: both may not fit at once
    arena_out_ = Buffer();
    plain_in_.clear();
    plain_out_.clear();
    if (task.buffers == Buffers::kPlain) {
      plain_in_.resize(static_cast<size_t>(bytes));
      plain_out_.resize(static_cast<size_t>(bytes));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(arena_in_, runtime_.Allocate(bytes));
    ASSIGN_OR_RETURN(arena_out_, runtime_.Allocate(bytes));
    return absl::OkStatus();
  }

  void* in() override { return task_.buffers == Buffers::kPlain ? plain_in_.data() : arena_in_.data(); }
  void* out() override { return task_.buffers == Buffers::kPlain ? plain_out_.data() : arena_out_.data(); }

  absl::Status Run(bool in_place) override {
    const TensorView output(out(), task_.count, task_.dtype);
    const ConstTensorView input(in_place ? out() : in(), task_.count, task_.dtype);
    return runtime_.world().AllReduce(input, output, {.op = task_.op});
  }

 private:
  Runtime& runtime_;
  AllReduceTask task_{};
  std::vector<std::byte> plain_in_, plain_out_;
  Buffer arena_in_, arena_out_;
};

}  // namespace

std::unique_ptr<Contender> MakeGyre(Runtime& runtime) {
  return std::make_unique<GyreContender>(runtime);
}

}  // namespace gyre::bench
