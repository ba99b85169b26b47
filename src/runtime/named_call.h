// NamedCallRunner: makes the collective calls that named operations come to, one at a time, without waiting.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fusion/negotiator.h"
#include "gyre/communicator.h"
#include "gyre/named_operations.h"
#include "runtime/named_gpu.h"
#include "runtime/named_marks.h"

namespace gyre::internal {

// What an operation reads and writes.
struct NamedBuffers {
  ConstTensorView in{};
  TensorView out{};
  Gathered* gathered = nullptr;  // of an allgather, in place of out
  std::chrono::milliseconds timeout{};
  std::shared_ptr<NamedMarks> marks{};  // of tensors on a GPU, and of their group's
};

// Not thread-safe. Must not be destroyed while busy.
class NamedCallRunner {
 public:
  explicit NamedCallRunner(Communicator& communicator) : communicator_(communicator) {}

  // `buffers`: by part; none where this rank contributes nothing. `gpu`: for steps of tensors on a GPU. All of them
  // must live until it has ended.
  // REQUIRES: !busy()
  void Start(const NamedStep& step, std::vector<const NamedBuffers*> buffers, NamedGpu* gpu);

  bool busy() const { return step_ != nullptr; }
  bool Carries(uint64_t ticket) const;  // whether it is busy with that operation

  // How the step ended, once it has.
  std::optional<absl::Status> Poll();

  // Over several hosts: how often it was asked whether all ranks follow the frozen order.
  int64_t agreements() const { return agreements_; }

 private:
  void StartData();
  absl::Status StartCall();
  absl::Status StartAllReduce();
  absl::Status StartAllGather();
  absl::Status StartBroadcast();
  absl::StatusOr<NamedTensors> Tensors();
  absl::StatusOr<NamedTensors> GatherTensors(int64_t total);
  absl::Status Divide();
  const NamedCall& call() const { return step_->parts.front().call; }
  int contributors() const { return communicator_.size() - static_cast<int>(step_->absent.size()); }

  Communicator& communicator_;
  const NamedStep* step_ = nullptr;
  std::vector<const NamedBuffers*> buffers_;
  NamedGpu* gpu_ = nullptr;
  CallOptions options_;
  bool agreeing_ = false;
  bool on_gpu_ = false;  // something was queued there
  uint8_t follows_ = 0;
  TensorView divided_{};            // what is yet to be divided by the number of contributors, if anything
  std::vector<std::byte> scratch_;  // in place of buffers
  absl::Status failure_;            // of this rank, before its call
  Work work_;
  int64_t agreements_ = 0;
};

}  // namespace gyre::internal
