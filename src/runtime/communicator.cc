#include "gyre/communicator.h"

#include <utility>
#include <vector>

#include "base/status.h"
#include "collectives/call.h"
#include "collectives/shm/make_operation.h"
#include "runtime/composition.h"
#include "runtime/split.h"

namespace gyre {

namespace {

using internal::Call;
using internal::CallKind;
using Counts = std::span<const int64_t>;

// An operation that has ended already: how asynchronous messages to nobody report that.
class Ended final : public internal::Pollable {
 public:
  explicit Ended(absl::Status status) {
    status_ = std::move(status);
    MarkDone();
  }
  shm::Progress Poll() override { return shm::Progress::kDone; }
  bool Check(TimePoint) override { return true; }
  void StartClock(TimePoint) override {}
};

// Whether the call has a place where others wait for it.
bool HasChannel(const internal::Group& group, const Call& call) {
  if (call.kind != CallKind::kMessage) return true;
  return call.peer >= 0 && call.peer < group.size() && call.peer != group.rank();
}

Call Moving(CallKind kind, ConstTensorView in, TensorView out, const CallOptions& options) {
  return {.kind = kind, .in = in, .out = out, .counts = {}, .receive_counts = {}, .timeout = options.timeout};
}

Call Reducing(CallKind kind, ConstTensorView in, TensorView out, const ReduceOptions& options) {
  return {.kind = kind,
          .in = in,
          .out = out,
          .op = options.op,
          .prescale = options.prescale,
          .postscale = options.postscale,
          .counts = {},
          .receive_counts = {},
          .timeout = options.timeout};
}

Call Rooted(Call call, int root) {
  call.root = root;
  return call;
}

Call Counted(Call call, Counts counts, Counts receive_counts = {}) {
  call.counts = counts;
  call.receive_counts = receive_counts;
  return call;
}

Call Message(ConstTensorView in, TensorView out, int peer, bool send, const CallOptions& options) {
  Call call = Moving(CallKind::kMessage, in, out, options);
  call.peer = peer;
  call.send = send;
  return call;
}

// Equal segments. What does not divide is left over, and validation finds that the sum is wrong.
std::vector<int64_t> Even(int64_t total, int size) {
  return std::vector<int64_t>(static_cast<size_t>(size), total / size);
}

}  // namespace

Communicator::Communicator(std::shared_ptr<internal::CommunicatorState> state) : state_(std::move(state)) {}
Communicator::~Communicator() = default;

int Communicator::rank() const { return state_->group()->rank(); }
int Communicator::size() const { return state_->group()->size(); }
int Communicator::local_rank() const { return rank(); }  // one host: see CheckOneHost
int Communicator::local_size() const { return size(); }
int Communicator::node_rank() const { return 0; }
int Communicator::node_count() const { return 1; }

absl::Status Communicator::Run(Call&& call) {
  internal::Group& group = *state_->group();
  if (absl::Status wrong = internal::Validate(call, group.rank(), group.size()); !wrong.ok()) [[unlikely]] {
    if (!HasChannel(group, call)) return wrong;
    internal::RefusedCall refused(group, internal::ChannelOf(group, call), wrong,
                                  state_->runtime().config().operation_timeout);
    return state_->runtime().progress()->Run(state_->owner(), refused.channel().lane, refused);
  }
  if (!call.timeout) call.timeout = state_->runtime().config().operation_timeout;
  return internal::MakeOperation(group, call, [&]<typename T>(std::type_identity<T>, auto&&... arguments) {
    T operation(arguments...);
    return state_->runtime().progress()->Run(state_->owner(), operation.channel().lane, operation);
  });
}

Work Communicator::Start(Call&& call) {
  const auto& group = state_->group();
  const auto& progress = state_->runtime().progress();
  std::shared_ptr<internal::Operation> operation;
  if (absl::Status wrong = internal::Validate(call, group->rank(), group->size()); !wrong.ok()) {
    if (!HasChannel(*group, call)) return Work(std::make_shared<Ended>(std::move(wrong)), progress);
    operation = std::make_shared<internal::RefusedCall>(*group, internal::ChannelOf(*group, call), std::move(wrong),
                                                        state_->runtime().config().operation_timeout);
  } else {
    if (!call.timeout) call.timeout = state_->runtime().config().operation_timeout;
    operation = internal::MakeOperation(*group, call, []<typename T>(std::type_identity<T>, auto&&... arguments) {
      return std::shared_ptr<internal::Operation>(std::make_shared<T>(arguments...));
    });
  }
  operation->Hold(group);
  progress->Start(state_->owner(), operation->channel().lane, operation);
  return Work(operation, progress);
}

// --- Blocking ---

absl::Status Communicator::AllReduce(ConstTensorView in, TensorView out, const ReduceOptions& options) {
  return Run(Reducing(CallKind::kAllReduce, in, out, options));
}

absl::Status Communicator::AllReduce(TensorView in_out, const ReduceOptions& options) {
  return Run(Reducing(CallKind::kAllReduce, in_out, in_out, options));
}

absl::Status Communicator::ReduceScatter(ConstTensorView in, TensorView out, const ReduceOptions& options) {
  return Run(Counted(Reducing(CallKind::kReduceScatter, in, out, options), Even(in.count, size())));
}

absl::Status Communicator::ReduceScatterV(ConstTensorView in, Counts counts, TensorView out,
                                          const ReduceOptions& options) {
  return Run(Counted(Reducing(CallKind::kReduceScatter, in, out, options), counts));
}

absl::Status Communicator::AllGather(ConstTensorView in, TensorView out, const CallOptions& options) {
  return Run(Counted(Moving(CallKind::kAllGather, in, out, options), Even(out.count, size())));
}

absl::Status Communicator::AllGatherV(ConstTensorView in, Counts counts, TensorView out, const CallOptions& options) {
  return Run(Counted(Moving(CallKind::kAllGather, in, out, options), counts));
}

absl::Status Communicator::Broadcast(TensorView in_out, int root, const CallOptions& options) {
  return Run(Rooted(Moving(CallKind::kBroadcast, in_out, in_out, options), root));
}

absl::Status Communicator::Reduce(ConstTensorView in, TensorView out, int root, const ReduceOptions& options) {
  return Run(Rooted(Reducing(CallKind::kReduce, in, out, options), root));
}

absl::Status Communicator::AllToAll(ConstTensorView in, TensorView out, const CallOptions& options) {
  const std::vector<int64_t> counts = Even(in.count, size());
  return Run(Counted(Moving(CallKind::kAllToAll, in, out, options), counts, counts));
}

absl::Status Communicator::AllToAllV(ConstTensorView in, Counts send_counts, TensorView out, Counts receive_counts,
                                     const CallOptions& options) {
  return Run(Counted(Moving(CallKind::kAllToAll, in, out, options), send_counts, receive_counts));
}

absl::Status Communicator::Barrier(const CallOptions& options) {
  return Run(Moving(CallKind::kBarrier, {}, {}, options));
}

absl::Status Communicator::Send(ConstTensorView data, int destination, const CallOptions& options) {
  return Run(Message(data, {}, destination, true, options));
}

absl::Status Communicator::Receive(TensorView data, int source, const CallOptions& options) {
  return Run(Message({}, data, source, false, options));
}

// --- Asynchronous ---

Work Communicator::AllReduceAsync(ConstTensorView in, TensorView out, const ReduceOptions& options) {
  return Start(Reducing(CallKind::kAllReduce, in, out, options));
}

Work Communicator::AllReduceAsync(TensorView in_out, const ReduceOptions& options) {
  return Start(Reducing(CallKind::kAllReduce, in_out, in_out, options));
}

Work Communicator::ReduceScatterAsync(ConstTensorView in, TensorView out, const ReduceOptions& options) {
  return Start(Counted(Reducing(CallKind::kReduceScatter, in, out, options), Even(in.count, size())));
}

Work Communicator::ReduceScatterVAsync(ConstTensorView in, Counts counts, TensorView out,
                                       const ReduceOptions& options) {
  return Start(Counted(Reducing(CallKind::kReduceScatter, in, out, options), counts));
}

Work Communicator::AllGatherAsync(ConstTensorView in, TensorView out, const CallOptions& options) {
  return Start(Counted(Moving(CallKind::kAllGather, in, out, options), Even(out.count, size())));
}

Work Communicator::AllGatherVAsync(ConstTensorView in, Counts counts, TensorView out, const CallOptions& options) {
  return Start(Counted(Moving(CallKind::kAllGather, in, out, options), counts));
}

Work Communicator::BroadcastAsync(TensorView in_out, int root, const CallOptions& options) {
  return Start(Rooted(Moving(CallKind::kBroadcast, in_out, in_out, options), root));
}

Work Communicator::ReduceAsync(ConstTensorView in, TensorView out, int root, const ReduceOptions& options) {
  return Start(Rooted(Reducing(CallKind::kReduce, in, out, options), root));
}

Work Communicator::AllToAllAsync(ConstTensorView in, TensorView out, const CallOptions& options) {
  const std::vector<int64_t> counts = Even(in.count, size());
  return Start(Counted(Moving(CallKind::kAllToAll, in, out, options), counts, counts));
}

Work Communicator::AllToAllVAsync(ConstTensorView in, Counts send_counts, TensorView out, Counts receive_counts,
                                  const CallOptions& options) {
  return Start(Counted(Moving(CallKind::kAllToAll, in, out, options), send_counts, receive_counts));
}

Work Communicator::BarrierAsync(const CallOptions& options) {
  return Start(Moving(CallKind::kBarrier, {}, {}, options));
}

Work Communicator::SendAsync(ConstTensorView data, int destination, const CallOptions& options) {
  return Start(Message(data, {}, destination, true, options));
}

Work Communicator::ReceiveAsync(TensorView data, int source, const CallOptions& options) {
  return Start(Message({}, data, source, false, options));
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Split(std::span<const int> ranks,
                                                                  const CallOptions& options) {
  const auto gather = [&](const std::vector<int64_t>& own, std::vector<int64_t>& all) {
    return AllGather(own, all, options);
  };
  ASSIGN_OR_RETURN(auto group, internal::SplitGroup(*state_->group(), ranks, gather));
  if (group == nullptr) return nullptr;
  auto state = std::make_shared<internal::CommunicatorState>(state_->shared_runtime(), std::move(group));
  return std::unique_ptr<Communicator>(new Communicator(std::move(state)));
}

}  // namespace gyre
