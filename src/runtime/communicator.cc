#include "gyre/communicator.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/process_mark.h"
#include "base/status.h"
#include "collectives/call.h"
#include "collectives/hierarchical/operation.h"
#include "collectives/observer.h"
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
  TimePoint deadline() const override { return TimePoint::max(); }
};

// Whether no call may be made: in a forked child of the process that joined the job, and where nobody else is there.
bool IsRefused(const internal::CommunicatorState& state) {
  return state.apart() || state.process().forked();
}

// REQUIRES: IsRefused.
absl::Status Refusal(const internal::CommunicatorState& state) {
  RETURN_IF_ERROR(state.process().Check());
  return absl::FailedPreconditionError(
      "this process took the place of one that died, alone: it has no collectives, but parameter servers");
}

// Whether the call has a place where others wait for it. `size`: of the communicator.
bool HasChannel(int rank, int size, const Call& call) {
  if (call.kind != CallKind::kMessage) return true;
  return call.peer >= 0 && call.peer < size && call.peer != rank;
}

Call Moving(CallKind kind, ConstTensorView in, TensorView out, const CallOptions& options) {
  return {.kind = kind, .in = in, .out = out, .timeout = options.timeout};
}

Call Reducing(CallKind kind, ConstTensorView in, TensorView out, const ReduceOptions& options) {
  return {.kind = kind,
          .in = in,
          .out = out,
          .op = options.op,
          .prescale = options.prescale,
          .postscale = options.postscale,
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

std::shared_ptr<internal::Pollable> ByMpi(const internal::CommunicatorState& state, Call& call,
                                          std::chrono::milliseconds timeout) {
  internal::mpi::Members members{state.group(), state.team()};
  const absl::Status refused = internal::Validate(call, members.rank(), members.size());
  call.timeout = timeout;
  return internal::mpi::Backend::Make(state.mpi(), std::move(members), call, refused);
}

// Of tensors that are on a GPU: Gyre's own, also where MPI has the others. REQUIRES: somebody waits for the call,
// HasChannel.
std::shared_ptr<internal::Pollable> OnGpu(const internal::CommunicatorState& state, Call& call,
                                          std::chrono::milliseconds timeout) {
  const auto& calls = state.gpu_calls();
  absl::Status refused = internal::Validate(call, calls->host().rank(), calls->host().size());
  call.timeout = timeout;
  return calls->Make(call, std::move(refused));
}

// As it begins.
internal::Observed ObservedOf(const Call& call) {
  static_assert(static_cast<int>(CallKind::kMessage) == static_cast<int>(internal::Activity::kMessage) + 1);
  return {.activity = static_cast<internal::Activity>(static_cast<int>(call.kind) - 1),
          .bytes = std::max(call.in.count * DTypeSize(call.in.dtype), call.out.bytes()),
          .begin = std::chrono::steady_clock::now()};
}

// REQUIRES: not queued.
void Watch(internal::CallObserver* observer, const Call& call, internal::Pollable& operation) {
  if (observer == nullptr) return;
  internal::Observed observed = ObservedOf(call);
  observed.asynchronous = true;
  operation.Observe(*observer, observed);
}

// Equal segments. What does not divide is left over, and validation finds that the sum is wrong.
internal::RankCounts Even(int64_t total, int size) {
  return internal::RankCounts(static_cast<size_t>(size), total / size);
}

Call Even(Call call) {
  call.even = true;
  return call;
}

// The communicator's ranks, as ranks of the job.
std::vector<int> JobRanks(const internal::CommunicatorState& state) {
  if (state.team() == nullptr) return state.group()->ranks();
  std::vector<int> ranks;
  for (int rank = 0; rank < state.team()->size(); ++rank) ranks.push_back(state.team()->place(rank).rank);
  return ranks;
}

}  // namespace

namespace internal {

// A call over several hosts, ready to run; or without an operation, why it may not.
struct HostsCall {
  absl::Status refused;
  std::shared_ptr<HierarchicalOperation> operation;
  Lane* lane = nullptr;
};

}  // namespace internal

Communicator::Communicator(std::shared_ptr<internal::CommunicatorState> state) : state_(std::move(state)) {}

Communicator::~Communicator() {
  if (state_->process().forked()) KeepUntilExit(state_);
}

int Communicator::rank() const {
  if (state_->apart()) return state_->runtime().job().rank;
  return state_->team() != nullptr ? state_->team()->rank() : state_->group()->rank();
}
int Communicator::size() const {
  if (state_->apart()) return state_->runtime().job().size;
  return state_->team() != nullptr ? state_->team()->size() : state_->group()->size();
}
int Communicator::local_rank() const {
  return state_->group()->rank();
}
int Communicator::local_size() const {
  return state_->group()->size();
}
int Communicator::node_rank() const {
  return state_->team() != nullptr ? state_->team()->host() : 0;
}
int Communicator::node_count() const {
  return state_->team() != nullptr ? state_->team()->hosts() : 1;
}

absl::Status Communicator::Run(Call&& call) {
  internal::CallObserver* const observer = state_->runtime().observer();
  if (observer == nullptr) [[likely]]
    return Perform(call);
  internal::Observed observed = ObservedOf(call);
  absl::Status status = Perform(call);
  observed.failed = !status.ok();
  observed.end = std::chrono::steady_clock::now();
  observer->Ended(observed);
  return status;
}

absl::Status Communicator::Perform(Call& call) {
  if (IsRefused(*state_)) [[unlikely]]
    return Refusal(*state_);
  if (DeviceOf(call).on_gpu() && HasChannel(rank(), size(), call)) [[unlikely]] {
    const auto operation = OnGpu(*state_, call, TimeoutOf(call));
    return state_->runtime().progress()->Run(state_->owner(), state_->gpu_calls()->host().LaneOf(call), *operation);
  }
  if (state_->mpi() != nullptr && call.kind != CallKind::kMessage) {
    return state_->runtime().progress()->Run(state_->mpi(), state_->mpi()->lane(),
                                             *ByMpi(*state_, call, TimeoutOf(call)));
  }
  if (state_->team() != nullptr && !IsWithinHost(call)) {
    const internal::HostsCall over_hosts = OverHosts(call);
    if (over_hosts.operation == nullptr) return over_hosts.refused;
    return state_->runtime().progress()->Run(state_->owner(), *over_hosts.lane, *over_hosts.operation);
  }
  internal::Group& group = *state_->group();
  if (absl::Status wrong = internal::Validate(call, group.rank(), group.size()); !wrong.ok()) [[unlikely]] {
    if (!HasChannel(group.rank(), group.size(), call)) return wrong;
    internal::RefusedCall refused(group, internal::ChannelOf(group, call), wrong, TimeoutOf(call));
    return state_->runtime().progress()->Run(state_->owner(), refused.channel().lane, refused);
  }
  if (!call.timeout) call.timeout = state_->runtime().config().operation_timeout;
  return internal::MakeOperation(group, call, [&]<typename T>(std::type_identity<T>, auto&&... arguments) {
    T operation(arguments...);
    return state_->runtime().progress()->Run(state_->owner(), operation.channel().lane, operation);
  });
}

Work Communicator::Start(Call&& call) {
  const auto& progress = state_->runtime().progress();
  if (IsRefused(*state_)) return Work(std::make_shared<Ended>(Refusal(*state_)), progress);
  if (DeviceOf(call).on_gpu() && HasChannel(rank(), size(), call)) {
    const std::shared_ptr<internal::Pollable> operation = OnGpu(*state_, call, TimeoutOf(call));
    Watch(state_->runtime().observer(), call, *operation);
    progress->Start(state_->owner(), state_->gpu_calls()->host().LaneOf(call), operation);
    return Work(operation, progress);
  }
  if (state_->mpi() != nullptr && call.kind != CallKind::kMessage) {
    const std::shared_ptr<internal::Pollable> operation = ByMpi(*state_, call, TimeoutOf(call));
    Watch(state_->runtime().observer(), call, *operation);
    progress->Start(state_->mpi(), state_->mpi()->lane(), operation);
    return Work(operation, progress);
  }
  if (state_->team() != nullptr && !IsWithinHost(call)) {
    internal::HostsCall over_hosts = OverHosts(call);
    if (over_hosts.operation == nullptr) return Work(std::make_shared<Ended>(over_hosts.refused), progress);
    Watch(state_->runtime().observer(), call, *over_hosts.operation);
    progress->Start(state_->owner(), *over_hosts.lane, over_hosts.operation);
    return Work(std::move(over_hosts.operation), progress);
  }
  const auto& group = state_->group();
  std::shared_ptr<internal::Operation> operation;
  if (absl::Status wrong = internal::Validate(call, group->rank(), group->size()); !wrong.ok()) {
    if (!HasChannel(group->rank(), group->size(), call)) {
      return Work(std::make_shared<Ended>(std::move(wrong)), progress);
    }
    operation = std::make_shared<internal::RefusedCall>(*group, internal::ChannelOf(*group, call), std::move(wrong),
                                                        TimeoutOf(call));
  } else {
    if (!call.timeout) call.timeout = state_->runtime().config().operation_timeout;
    operation = internal::MakeOperation(*group, call, []<typename T>(std::type_identity<T>, auto&&... arguments) {
      return std::shared_ptr<internal::Operation>(std::make_shared<T>(arguments...));
    });
  }
  operation->Hold(group);
  if (call.peer_may_leave) operation->LetPeersLeave();
  Watch(state_->runtime().observer(), call, *operation);
  progress->Start(state_->owner(), operation->channel().lane, operation);
  return Work(operation, progress);
}

// What a call that may have a wrong timeout waits at most.
std::chrono::milliseconds Communicator::TimeoutOf(const Call& call) const {
  const bool given = call.timeout && call.timeout->count() > 0;
  return given ? *call.timeout : state_->runtime().config().operation_timeout;
}

// In a communicator over several hosts: whether the call is a message to a rank of this host. It then names that rank
// by its number on the host.
bool Communicator::IsWithinHost(Call& call) const {
  const internal::Team& team = *state_->team();
  if (call.kind != CallKind::kMessage || !HasChannel(team.rank(), team.size(), call)) return false;
  if (team.place(call.peer).host != team.host()) return false;
  call.peer = team.place(call.peer).local;
  return true;
}

internal::HostsCall Communicator::OverHosts(Call& call) const {
  const auto& team = state_->team();
  const bool message = call.kind == CallKind::kMessage;
  internal::HostsCall result;
  result.refused = internal::Validate(call, team->rank(), team->size());
  if (!result.refused.ok() && !HasChannel(team->rank(), team->size(), call)) return result;
  call.timeout = TimeoutOf(call);
  result.operation = result.refused.ok() ? internal::MakeHierarchical(team, call)
                                         : internal::MakeHierarchicalRefusal(team, call, result.refused);
  if (message) {
    result.lane = call.send ? &team->outgoing(call.peer).lane : &team->incoming(call.peer).lane;
  } else {
    result.lane = &team->lane();
  }
  return result;
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
  const internal::RankCounts counts = Even(in.count, size());
  return Run(Even(Counted(Moving(CallKind::kAllToAll, in, out, options), counts, counts)));
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
  const internal::RankCounts counts = Even(in.count, size());
  return Start(Even(Counted(Moving(CallKind::kAllToAll, in, out, options), counts, counts)));
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
  RETURN_IF_ERROR(state_->process().Check());
  const auto gather = [&](const std::vector<int64_t>& own, std::vector<int64_t>& all) {
    return AllGather(own, all, options);
  };
  internal::RuntimeState& runtime = state_->runtime();
  const internal::SplitParent parent{
      .ranks = JobRanks(*state_), .reserve = [&](const std::vector<int>& job_ranks) {
        const internal::GroupLayout layout{.size = static_cast<int>(runtime.OnThisHost(job_ranks).size())};
        return runtime.node()->ReserveRegion(layout.bytes());
      }};
  const uint64_t number = state_->NextSplit();
  ASSIGN_OR_RETURN(const internal::SplitResult result, internal::AgreeOnSplit(parent, ranks, gather));
  if (result.ranks.empty()) return nullptr;
  const uint64_t parent_id = state_->team() != nullptr ? state_->team()->id() : 0;
  ASSIGN_OR_RETURN(auto meetings,
                   runtime.Meet(result.ranks, result.regions, internal::SplitId(parent_id, number, result.ranks[0])));
  auto state = std::make_shared<internal::CommunicatorState>(state_->shared_runtime(), std::move(meetings));
  return std::unique_ptr<Communicator>(new Communicator(std::move(state)));
}

}  // namespace gyre
