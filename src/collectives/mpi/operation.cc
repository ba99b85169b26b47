#include "collectives/mpi/operation.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace gyre::internal::mpi {

namespace {

// Of calls that can be cut.
constexpr int64_t kPieceBytes = 16 << 20;

Call WithOwnCounts(Call call, std::span<const int64_t> counts, std::span<const int64_t> receive_counts) {
  call.counts = counts;
  call.receive_counts = receive_counts;
  return call;
}

// Whether all ranks have one count of elements, so that the call may be cut.
bool IsEven(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kReduce || kind == CallKind::kBroadcast;
}

// In elements of so many units.
std::vector<int> Narrowed(std::span<const int64_t> numbers, int64_t unit) {
  std::vector<int> narrow;
  for (const int64_t number : numbers) narrow.push_back(static_cast<int>(number * unit));
  return narrow;
}

void Copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

std::vector<std::byte> Zeroed(int64_t bytes) {
  return std::vector<std::byte>(static_cast<size_t>(bytes));
}

}  // namespace

Operation::Operation(std::shared_ptr<Backend> backend, Members members, const Call& call, absl::Status refused)
    : backend_(std::move(backend)),
      members_(std::move(members)),
      counts_(call.counts.begin(), call.counts.end()),
      receive_counts_(call.receive_counts.begin(), call.receive_counts.end()),
      call_(WithOwnCounts(call, counts_, receive_counts_)),
      refused_(std::move(refused)) {}

// --- Going on ---

shm::Progress Operation::Poll() {
  if (state_ == State::kBefore && !Begin()) return shm::Progress::kDone;
  if (state_ == State::kEnded) return shm::Progress::kDone;
  const auto done = request_->Test();
  if (!done.ok()) {
    FailAlone(done.status());
    return shm::Progress::kDone;
  }
  if (!*done) {
    // Nothing rings when MPI has come further: whoever waits must look. Others may need this processor for that.
    sched_yield();
    return shm::Progress::kSome;
  }
  request_.reset();
  TakePiece();
  const bool more = done_ < PieceCount() && NextPiece();
  if (state_ != State::kEnded && !more) {
    if (adasum_) {
      while (adasum_->Combine()) {
      }
      adasum_->Store(call_.out.data, call_.postscale);
    }
    End(absl::OkStatus());
  }
  return more ? shm::Progress::kSome : shm::Progress::kDone;
}

bool Operation::Begin() {
  Group& group = *members_.group;
  if (group.node().closed()) return !End(absl::FailedPreconditionError("the runtime was shut down"));
  if (absl::Status broken = group.status(); !broken.ok()) {
    return !End(absl::FailedPreconditionError(absl::StrCat("the communicator is unusable: ", broken.message())));
  }
  if (FindBroken()) return false;
  if (!refused_.ok()) return !FailAlone(refused_);
  if (const absl::Status size = CheckSize(); !size.ok()) return !FailAlone(size);
  state_ = State::kUnderWay;
  staging_ = std::make_shared<Staging>();
  if (call_.op == ReduceOp::kAdasum) adasum_.emplace(call_.in.dtype, members_.size(), call_.in.count);
  return NextPiece();
}

bool Operation::NextPiece() {
  auto started = StartPiece();
  if (!started.ok()) return !FailAlone(started.status());
  request_ = *std::move(started);
  return true;
}

// MPI counts with int.
absl::Status Operation::CheckSize() const {
  if (IsEven(call_.kind)) return absl::OkStatus();
  const int64_t bytes = std::max(call_.in.bytes(), call_.out.bytes()) * 2;  // half types are staged as float
  if (bytes <= std::numeric_limits<int>::max()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(Context(), ": MPI's counts are too narrow for more than 1 GiB"));
}

int64_t Operation::PieceElements() const {
  const int64_t most = std::max<int64_t>(1, kPieceBytes / 8 / (adasum_ ? members_.size() : 1));
  return std::min(PieceCount() - done_, most);
}

// Of what is cut; what is not is one.
int64_t Operation::PieceCount() const {
  return IsEven(call_.kind) ? call_.in.count : 1;
}

Transport::Started Operation::StartPiece() {
  if (call_.kind == CallKind::kBarrier) return backend_->transport().Barrier();
  if (!IsEven(call_.kind)) return StartSegments();
  Transport& transport = backend_->transport();
  const int64_t count = PieceElements();
  const void* const from = static_cast<const std::byte*>(call_.in.data) + done_ * element();
  std::vector<std::byte>&in = staging_->in, &out = staging_->out;
  if (call_.kind == CallKind::kBroadcast) {
    in = Zeroed(count * element());
    if (members_.rank() == call_.root) Copy(in.data(), from, count * element());
    return transport.Broadcast(staging_, in.data(), static_cast<int>(in.size()), call_.root);
  }
  if (adasum_) {
    in = Zeroed(count * element());
    out = Zeroed(count * element() * members_.size());
    Copy(in.data(), from, count * element());
    const std::vector<int64_t> counts(static_cast<size_t>(members_.size()), count);
    staging_->out_counts = Narrowed(counts, element());
    staging_->out_begins = Narrowed(Displacements(counts), element());
    return transport.AllGather(staging_, in.data(), static_cast<int>(in.size()), out.data(),
                               {staging_->out_counts, staging_->out_begins});
  }
  const DType dtype = ReducedType(call_.in.dtype);
  const ReduceOp op = ReducedOp(call_.in.dtype, call_.op);
  in = Zeroed(count * DTypeSize(dtype));
  out = Zeroed(count * DTypeSize(dtype));
  Stage(call_, from, count, in.data());
  const int narrow = static_cast<int>(count);
  if (call_.kind == CallKind::kAllReduce)
    return transport.AllReduce(staging_, in.data(), out.data(), narrow, dtype, op);
  return transport.Reduce(staging_, in.data(), out.data(), narrow, dtype, op, call_.root);
}

Transport::Started Operation::StartSegments() {
  Transport& transport = backend_->transport();
  Staging& memory = *staging_;
  const DType dtype = ReducedType(call_.in.dtype);
  if (call_.kind == CallKind::kReduceScatter) {
    memory.in = Zeroed(call_.in.count * DTypeSize(dtype));
    memory.out = Zeroed(call_.out.count * DTypeSize(dtype));
    memory.in_counts = Narrowed(counts_, 1);
    Stage(call_, call_.in.data, call_.in.count, memory.in.data());
    return transport.ReduceScatter(staging_, memory.in.data(), memory.out.data(), memory.in_counts, dtype,
                                   ReducedOp(call_.in.dtype, call_.op));
  }
  memory.in = Zeroed(call_.in.bytes());
  memory.out = Zeroed(call_.out.bytes());
  Copy(memory.in.data(), call_.in.data, call_.in.bytes());
  memory.in_counts = Narrowed(counts_, element());
  memory.in_begins = Narrowed(Displacements(counts_), element());
  if (call_.kind == CallKind::kAllGather) {
    return transport.AllGather(staging_, memory.in.data(), static_cast<int>(call_.in.bytes()), memory.out.data(),
                               {memory.in_counts, memory.in_begins});
  }
  memory.out_counts = Narrowed(receive_counts_, element());
  memory.out_begins = Narrowed(Displacements(receive_counts_), element());
  return transport.AllToAll(staging_, memory.in.data(), {memory.in_counts, memory.in_begins}, memory.out.data(),
                            {memory.out_counts, memory.out_begins});
}

// What MPI has brought, to where the user wants it.
void Operation::TakePiece() {
  const Staging& memory = *staging_;
  const int64_t count = PieceElements();
  const int64_t begin = std::exchange(done_, done_ + std::max<int64_t>(count, 1));
  const auto to = [&] { return static_cast<std::byte*>(call_.out.data) + begin * element(); };
  switch (call_.kind) {
    case CallKind::kAllReduce:
      if (!adasum_) return Unstage(call_, members_.size(), memory.out.data(), count, to());
      for (int rank = 0; rank < members_.size() && count > 0; ++rank) {
        adasum_->Take(rank, begin, memory.out.data() + rank * count * element(), count, call_.prescale);
      }
      return;
    case CallKind::kReduce:
      if (members_.rank() == call_.root) Unstage(call_, members_.size(), memory.out.data(), count, to());
      return;
    case CallKind::kBroadcast: return Copy(to(), memory.in.data(), count * element());
    case CallKind::kReduceScatter:
      return Unstage(call_, members_.size(), memory.out.data(), call_.out.count, call_.out.data);
    case CallKind::kAllGather:
    case CallKind::kAllToAll: return Copy(call_.out.data, memory.out.data(), call_.out.bytes());
    default: return;
  }
}

// --- Looking for cause to end ---

bool Operation::Check(TimePoint now) {
  if (state_ == State::kEnded) return true;
  if (deadline_ == TimePoint{}) StartClock(now);
  if (members_.group->node().closed()) return End(absl::FailedPreconditionError("the runtime was shut down"));
  if (FindBroken() || FindLost()) return true;
  if (now < deadline_) return false;
  const std::string text = absl::StrFormat(
      "%s timed out after %.3g s in MPI, which does not say for whom it waits; ranks with "
      "tensors on a GPU do not come there",
      Context(), std::chrono::duration<double>(*call_.timeout).count());
  return Fail(absl::DeadlineExceededError(text), {-1, text});
}

bool Operation::FindBroken() {
  Group& group = *members_.group;
  auto words = group.OwnLastWords();
  if (!words) words = group.FindLastWords();
  if (!words) return false;
  if (words->rank >= 0) group.node().LearnLoss(words->rank, words->text);
  return Fail(absl::Status(words->code, absl::StrCat(Context(), " was aborted: ", words->text)), *words);
}

// The world's ranks are numbered as the job's.
bool Operation::FindLost() {
  shm::Node& node = members_.group->node();
  if (node.losses() == 0) return false;
  for (int rank = 0; rank < members_.size(); ++rank) {
    const auto loss = node.LossOf(rank);
    if (!loss || loss->left()) continue;
    return Fail(absl::AbortedError(absl::StrCat(Context(), " was aborted: ", loss->text)), {rank, loss->text});
  }
  return false;
}

// --- Ending; all return true ---

bool Operation::FailAlone(const absl::Status& why) {
  const std::string text = absl::StrCat("rank ", members_.rank(), " gave the communicator up: ", why.message());
  return Fail(why, {-1, text, why.code()});
}

bool Operation::Fail(absl::Status status, const shm::LastWords::Content& words) {
  if (members_.team != nullptr) {
    members_.team->Break(status, words);
    members_.team->MarkTold();
  } else {
    members_.group->Break(status, words);
  }
  return End(std::move(status));
}

// A request that has not ended is left to MPI, with the memory that it uses.
bool Operation::End(absl::Status status) {
  status_ = std::move(status);
  state_ = State::kEnded;
  request_.reset();
  staging_.reset();
  adasum_.reset();
  return true;
}

std::string Operation::Context() const {
  return absl::StrCat(Describe(SignatureOf(call_)), " by MPI");
}

std::shared_ptr<Pollable> Backend::Make(const std::shared_ptr<Backend>& self, Members members, const Call& call,
                                        const absl::Status& refused) {
  return std::make_shared<Operation>(self, std::move(members), call, refused);
}

}  // namespace gyre::internal::mpi
