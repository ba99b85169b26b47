// NamedCallRunner: makes the collective calls that named operations come to, one at a time, without waiting.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "fusion/negotiator.h"
#include "gyre/communicator.h"
#include "gyre/named_operations.h"

namespace gyre::internal {

// What an operation reads and writes.
struct NamedBuffers {
  ConstTensorView in{};
  TensorView out{};
  Gathered* gathered = nullptr;  // of an allgather, in place of out
  std::chrono::milliseconds timeout{};
};

// Not thread-safe. Must not be destroyed while busy.
class NamedCallRunner {
 public:
  explicit NamedCallRunner(Communicator& communicator) : communicator_(communicator) {}

  // `buffers`: null where this rank contributes nothing. Step and buffers must live until it has ended.
  // REQUIRES: !busy()
  void Start(const NamedStep& step, const NamedBuffers* buffers);

  bool busy() const { return step_ != nullptr; }
  uint64_t ticket() const { return ticket_; }  // of the step, while busy

  // How the step ended, once it has.
  std::optional<absl::Status> Poll();

  // Over several hosts: how often it was asked whether all ranks follow the frozen order.
  int64_t agreements() const { return agreements_; }

 private:
  void StartData();
  void StartAllReduce();
  void StartAllGather();
  Work StartBroadcast();
  void MakeNeutral();
  int contributors() const { return communicator_.size() - static_cast<int>(step_->absent.size()); }

  Communicator& communicator_;
  const NamedStep* step_ = nullptr;
  uint64_t ticket_ = 0;
  const NamedBuffers* buffers_ = nullptr;
  CallOptions options_;
  bool agreeing_ = false;
  uint8_t follows_ = 0;
  TensorView divided_{};            // what is yet to be divided by the number of contributors, if anything
  std::vector<std::byte> scratch_;  // in place of buffers
  Work work_;
  int64_t agreements_ = 0;
};

}  // namespace gyre::internal
