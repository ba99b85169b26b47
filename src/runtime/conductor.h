// Conductor: what NamedOperations is. It drives the two state machines of negotiation with the messages and calls of a
// communicator of its own. It is one more operation among those that Progress advances, for as long as it lives, so
// that there is no thread of its own: whoever submits or waits does its work, or else the progress thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/process_mark.h"
#include "collectives/call.h"
#include "collectives/lane.h"
#include "fusion/coordinator.h"
#include "fusion/negotiator.h"
#include "gyre/named_operations.h"
#include "runtime/composition.h"
#include "runtime/message_link.h"
#include "runtime/named_call.h"
#include "runtime/named_gpu.h"
#include "runtime/named_marks.h"

namespace gyre::internal {

// One operation as it was asked for.
struct NamedRequest {
  std::string name;
  NamedSignature signature;
  NamedBuffers buffers;
};

class Conductor final : public Pollable, public std::enable_shared_from_this<Conductor> {
 public:
  // `communicator`: its own; `state`: what that is.
  Conductor(std::unique_ptr<Communicator> communicator, std::shared_ptr<CommunicatorState> state);

  // From now on it is advanced.
  void Begin();

  // --- Any thread ---

  Communicator& communicator() const { return *communicator_; }
  const Config& config() const { return state_->runtime().config(); }

  // Marks what has been queued on the call's streams; `marks`: of what is submitted with it, made by the first.
  //   kInvalidArgument               another GPU, a stream that is being captured
  //   kUnimplemented, kUnavailable   the GPU cannot be used
  absl::Status Mark(const Call& call, std::shared_ptr<NamedMarks>& marks);

  // Some operations, a group where there are several. `refusal`: this rank's arguments are wrong. `marks`: of tensors
  // on a GPU, or null.
  Work Submit(std::vector<NamedRequest> requests, const absl::Status& refusal, std::shared_ptr<NamedMarks> marks);
  Work Join(int* last_rank);

  // Tells the other ranks and returns when nothing is under way any more. The last call.
  void Leave();

  NamedStatistics statistics() const;

  // RuntimeState::process.
  const ProcessMark& process() const { return state_->process(); }

  // --- Pollable ---

  shm::Progress Poll() override;
  bool Check(TimePoint now) override;
  void StartClock(TimePoint) override {}
  bool AddWaits(std::vector<pollfd>&) const override { return negotiator_.idle(); }
  TimePoint deadline() const override { return TimePoint(Duration(deadline_.load())); }

 private:
  // What a Work of the user's refers to: an operation, a group of them, or a join.
  class Handle;
  struct Wish {
    std::vector<NamedRequest> requests;  // none: a join
    TimePoint time{};
    std::shared_ptr<Handle> handle;
  };
  struct Operation {
    NamedBuffers buffers;
    std::shared_ptr<Handle> handle;
  };

  Work Ask(Wish wish, std::shared_ptr<NamedMarks> marks);
  void Nudge();
  bool Advance();
  bool TakeWishes();
  void Accept(Wish& wish);
  bool Receive();
  void OnMessage(int peer, const std::string& bytes);
  void OnNoMessage(int peer, const absl::Status& why);
  bool DriveCall();
  bool Talk();
  void Deliver(std::vector<Decision> decisions);
  bool FollowHeld();
  void SendTo(int peer, std::string bytes);
  bool Finish();
  void End(const NamedEnd& end);
  void GiveUp(const absl::Status& status);
  void RingWaiters();
  void Publish();
  bool Drained() const;
  void FindDeadline();
  absl::StatusOr<std::shared_ptr<device::Gpu>> OpenGpu(int ordinal);
  NamedGpu* gpu();
  MessageLink* LinkTo(int peer) const { return links_[static_cast<size_t>(peer)].get(); }

  const std::unique_ptr<Communicator> communicator_;
  const std::shared_ptr<CommunicatorState> state_;
  const int rank_;
  Lane lane_;
  std::atomic<Duration::rep> deadline_{TimePoint::max().time_since_epoch().count()};

  // --- Of whoever drives it ---
  Negotiator negotiator_;
  std::optional<Coordinator> coordinator_;           // on rank 0
  std::vector<std::unique_ptr<MessageLink>> links_;  // by peer: on rank 0 with all others, elsewhere with rank 0
  std::vector<Decision> held_;                       // on rank 0: what it follows once the others have been told
  TimePoint held_until_{};
  NamedCallRunner runner_;
  std::map<uint64_t, Operation> operations_;  // by ticket
  uint64_t last_ticket_ = 0;
  uint64_t generation_ = 0;
  int64_t carried_ = 0;             // operations that the call under way carries out
  std::vector<NamedEnd> deferred_;  // operations that were given up while a call still uses their buffers
  bool left_ = false;               // somebody has left: all messages but a goodbye have been said
  bool broken_ = false;
  bool told_over_ = false;
  NamedStatistics counted_;

  mutable std::mutex mutex_;
  std::vector<Wish> wishes_;        // guarded by mutex_
  bool leaving_ = false;            // guarded by mutex_
  TimePoint leave_by_{};            // guarded by mutex_
  absl::Status over_;               // guarded by mutex_
  NamedStatistics statistics_;      // guarded by mutex_
  std::unique_ptr<NamedGpu> gpu_;   // from the first tensor on one; guarded by mutex_, and then of the driver
  std::atomic<bool> asked_{false};  // there may be wishes
};

}  // namespace gyre::internal
