#include "collectives/nccl/operation.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "collectives/gpu_counts.h"
#include "collectives/hierarchical/operation.h"
#include "collectives/shm/allgather.h"

namespace gyre::internal::nccl {

namespace {

constexpr size_t kIdWords = sizeof(UniqueId) / sizeof(int64_t);
constexpr size_t kPlaceWords = sizeof(Places) / sizeof(int64_t);
static_assert(kPlaceWords == 4);  // bytes and offset, of input and output

constexpr int64_t kAlignment = 256;  // bytes: of tensors in scratch memory

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Operation::Operation(std::shared_ptr<Backend> backend, const GpuCall& call)
    : backend_(std::move(backend)), call_(call), signature_(SignatureOf(call.call)) {}

// --- Going on ---

shm::Progress Operation::Poll() {
  if (state_ == State::kBefore) Begin();
  if (state_ == State::kAgreeing) {
    if (const shm::Progress agreed = Agree(); state_ == State::kAgreeing) return agreed;
  }
  if (state_ == State::kEnded) return shm::Progress::kDone;
  if (state_ == State::kInTrouble) return shm::Progress::kNone;
  const State before = state_;
  const auto moved = Advance();
  if (!moved.ok()) {
    BeInTrouble(moved.status());
    return shm::Progress::kSome;
  }
  if (state_ == State::kEnded) return shm::Progress::kDone;
  if (*moved) return shm::Progress::kSome;
  if (before == State::kConnecting && !connection().full()) return shm::Progress::kNone;  // long enough to sleep
  // Nothing rings when NCCL has launched, or the GPU has room: whoever waits must look.
  sched_yield();
  return shm::Progress::kSome;
}

void Operation::Begin() {
  if (absl::Status usable = members().Usable(); !usable.ok()) {
    End(std::move(usable));
    return;
  }
  if (const auto cause = members().FindCause(Context()); cause) {
    Fail(*cause);
    return;
  }
  state_ = State::kAgreeing;
  agreement_ = MakeAgreement();
  if (agreement_ == nullptr) return;
  agreement_->StartClock(start_ == TimePoint{} ? std::chrono::steady_clock::now() : start_);
}

// That all make this call; and what they find each other by, if they have yet to. Null: nothing to agree on.
std::shared_ptr<Pollable> Operation::MakeAgreement() {
  const bool connects = !connection().started();
  if (connects && members().rank() == 0) {
    if (const auto id = backend_->api().MakeId(); id.ok()) {
      id_ = *id;
    } else {
      BeInTrouble(id.status());
      return nullptr;
    }
  }
  if (members().team == nullptr) return Exchange(connects);
  if (!connects) return nullptr;
  const TensorView words(id_.data(), static_cast<int64_t>(id_.size()), DType::kU8);
  return MakeHierarchical(
      members().team,
      {.kind = CallKind::kBroadcast, .in = words, .out = words, .timeout = call_.call.timeout, .part_of = &signature_});
}

// What each rank of the one host says in its row. NCCL does not look whether what is sent is expected: sends and
// receives that differ are undefined, or wait for ever; as is memory that only some ranks have registered.
std::shared_ptr<Pollable> Operation::Exchange(bool connects) {
  const auto size = static_cast<size_t>(members().size());
  std::vector<int64_t> row(connects ? kIdWords : 0);
  if (connects) std::memcpy(row.data(), id_.data(), sizeof id_);
  const auto places =
      std::bit_cast<std::array<int64_t, kPlaceWords>>(PlacesOf(call_.call, members().rank(), backend_->memory()));
  row.insert(row.end(), places.begin(), places.end());
  if (call_.call.kind == CallKind::kAllToAll) {
    row.insert(row.end(), call_.call.counts.begin(), call_.call.counts.end());
    row.insert(row.end(), call_.call.receive_counts.begin(), call_.call.receive_counts.end());
  }
  rows_.resize(row.size() * size);
  int64_t* const mine = &rows_[row.size() * static_cast<size_t>(members().rank())];
  std::ranges::copy(row, mine);
  const RankCounts counts(size, std::ssize(row));
  return std::make_shared<internal::AllGather>(*members().group,
                                               Call{.kind = CallKind::kAllGather,
                                                    .in = {mine, std::ssize(row), DType::kI64},
                                                    .out = {rows_.data(), std::ssize(rows_), DType::kI64},
                                                    .counts = counts,
                                                    .timeout = call_.call.timeout},
                                               signature_);
}

// All ranks come to the same answer.
absl::Status Operation::TakeRows() {
  const auto size = static_cast<size_t>(members().size());
  const std::span<const int64_t> rows(rows_);
  const size_t row = rows.size() / size, before = connection().started() ? 0 : kIdWords;
  if (before > 0) std::memcpy(id_.data(), rows.data(), sizeof id_);
  const auto places = rows.subspan(before, kPlaceWords);
  const auto same = [&](size_t r) { return std::ranges::equal(rows.subspan(r * row + before, kPlaceWords), places); };
  same_place_ = places[0] > 0 && places[2] > 0;  // of input and output
  for (size_t r = 1; r < size; ++r) same_place_ = same_place_ && same(r);
  if (call_.call.kind != CallKind::kAllToAll) return absl::OkStatus();
  std::vector<int64_t> counts;
  for (size_t r = 0; r < size; ++r) {
    const auto of_rank = rows.subspan(r * row + before + kPlaceWords, 2 * size);
    counts.insert(counts.end(), of_rank.begin(), of_rank.end());
  }
  return Annotate(CountsAgree(counts, members().size()), Context());
}

shm::Progress Operation::Agree() {
  if (agreement_ != nullptr) {
    const shm::Progress progress = agreement_->Poll();
    if (progress != shm::Progress::kDone) return progress;
    if (!agreement_->status().ok()) {
      End(agreement_->status());  // which has dealt with the communicator as well
      return shm::Progress::kDone;
    }
    agreement_.reset();
  }
  if (!rows_.empty()) {
    if (absl::Status agree = TakeRows(); !agree.ok()) {
      End(std::move(agree));
      return shm::Progress::kDone;
    }
  }
  if (absl::Status connected = Connect(); !connected.ok()) BeInTrouble(std::move(connected));
  return shm::Progress::kSome;
}

absl::Status Operation::Connect() {
  state_ = State::kConnecting;
  return connection().started() ? absl::OkStatus() : connection().Start(id_);
}

// True: it has come further.
absl::StatusOr<bool> Operation::Advance() {
  ASSIGN_OR_RETURN(const bool ready, connection().Poll());
  if (!ready) return false;
  if (state_ == State::kConnecting) {
    RETURN_IF_ERROR(Launch());
    state_ = State::kLaunching;
    return true;
  }
  RETURN_IF_ERROR(Finish());
  End(absl::OkStatus());
  return true;
}

absl::Status Operation::Launch() {
  if (call_.manner.capturing) {
    ASSIGN_OR_RETURN(const Call call, Placed());
    plan_ = PlanOf(call, members().rank(), members().size(), nullptr);
    return connection().Capture(plan_.group, call_.manner.graph, stream());
  }
  queued_ = true;
  if (call_.input_ready != nullptr) RETURN_IF_ERROR(gpu().Wait(stream(), call_.input_ready));
  if (call_.output_ready != nullptr && call_.output_ready != call_.input_ready) {
    RETURN_IF_ERROR(gpu().Wait(stream(), call_.output_ready));
  }
  if (call_.replays()) return connection().Launch(*call_.manner.graph);
  ASSIGN_OR_RETURN(const Call call, Placed());
  void* scratch = nullptr;
  if (const int64_t bytes = ScratchBytes(call); bytes > 0) {
    ASSIGN_OR_RETURN(scratch, backend_->Scratch(bytes));
  }
  plan_ = PlanOf(call, members().rank(), members().size(), scratch);
  if (plan_.copy_from != nullptr) RETURN_IF_ERROR(gpu().Copy(scratch, plan_.copy_from, plan_.copy_bytes, stream()));
  return connection().Launch(plan_.group);
}

// As NCCL is given it: with memory that all ranks have registered, or none.
absl::StatusOr<Call> Operation::Placed() {
  const auto of_in = backend_->memory().Find(call_.call.in.data), of_out = backend_->memory().Find(call_.call.out.data);
  if (same_place_ || call_.manner.same_place) {
    for (const auto& piece : {of_in, of_out}) {
      if (piece) RETURN_IF_ERROR(connection().Register(piece->begin, piece->bytes));
    }
    return call_.call;
  }
  const auto registered = [this](const auto& piece) { return piece && connection().HasRegistered(piece->begin); };
  if (!registered(of_in) && !registered(of_out)) return call_.call;
  if (!call_.manner.capturing) return Detoured();
  return absl::FailedPreconditionError("a tensor is in registered memory, and on other ranks is not: not captured");
}

// By way of memory that is not registered.
absl::StatusOr<Call> Operation::Detoured() {
  Call call = call_.call;
  const int64_t in = Aligned(call.in.bytes()), out = Aligned(call.out.bytes());
  ASSIGN_OR_RETURN(void* const memory, backend_->Scratch(in + out));
  auto* const copy = static_cast<std::byte*>(memory);
  RETURN_IF_ERROR(gpu().Copy(copy, call.in.data, call.in.bytes(), stream()));
  call.in.data = copy;
  call.out.data = copy + in;
  if (call.kind == CallKind::kBroadcast) call.out.data = copy;  // which is in place
  detour_ = call.out.data;
  return call;
}

// What NCCL left to do, and the caller's streams wait for all of it.
absl::Status Operation::Finish() {
  if (plan_.finished.count > 0) {
    const std::array<const void*, 1> source = {plan_.finished.data};
    const std::array<void*, 1> destination = {plan_.finished.data};
    RETURN_IF_ERROR(gpu().Reduce(plan_.finish, source, destination, plan_.finished.count, stream()));
  }
  if (call_.manner.capturing) return absl::OkStatus();
  if (detour_ != nullptr) {
    RETURN_IF_ERROR(gpu().Copy(call_.call.out.data, detour_, call_.call.out.bytes(), stream()));
  }
  RETURN_IF_ERROR(HaveCallerWait());
  backend_->Watch();
  return absl::OkStatus();
}

absl::Status Operation::HaveCallerWait() {
  queued_ = false;
  if (deadline_ == TimePoint{}) StartClock(std::chrono::steady_clock::now());
  ASSIGN_OR_RETURN(const device::Gpu::Event done, connection().Watch(deadline_, Context()));
  const Device &in = call_.call.in.device, &out = call_.call.out.device;
  if (in.on_gpu()) RETURN_IF_ERROR(gpu().Wait(in.stream, done));
  return out.on_gpu() && out != in ? gpu().Wait(out.stream, done) : absl::OkStatus();
}

// --- Looking for cause to end ---

bool Operation::Check(TimePoint now) {
  if (state_ == State::kEnded) return true;
  if (deadline_ == TimePoint{}) StartClock(now);
  if (state_ == State::kAgreeing && agreement_ != nullptr) {
    return agreement_->Check(now) && End(agreement_->status());
  }
  if (members().group->node().closed()) {
    connection().Abort();
    return End(absl::FailedPreconditionError("the runtime was shut down"));
  }
  if (const auto cause = members().FindCause(Context()); cause) return Fail(*cause);
  if (now < deadline()) return false;
  return named_by_ ? FailAlone(trouble_) : FailLate();
}

TimePoint Operation::deadline() const {
  if (named_by_) return std::min(deadline_, *named_by_);
  return agreement_ != nullptr ? std::min(deadline_, agreement_->deadline()) : deadline_;
}

bool Operation::AddWaits(std::vector<pollfd>& waits) const {
  return state_ == State::kAgreeing && agreement_ != nullptr && agreement_->AddWaits(waits);
}

// NCCL has given up, and the GPU is given up with it. If a rank was lost, that is known in a moment, by its name.
void Operation::BeInTrouble(absl::Status why) {
  connection().Abort();
  trouble_ = std::move(why);
  named_by_ = std::chrono::steady_clock::now() + kNamingPatience;
  state_ = State::kInTrouble;
}

// --- Ending; all return true ---

bool Operation::Fail(const Members::Cause& cause) {
  members().Break(cause);
  connection().Abort();
  return End(cause.status);
}

bool Operation::FailAlone(const absl::Status& why) {
  const absl::Status status = Annotate(why, Context());
  members().GiveUp(status);
  connection().Abort();
  return End(status);
}

bool Operation::FailLate() {
  const char* const doing = connection().full()            ? "waiting for the GPU to do earlier calls"
                            : state_ == State::kConnecting ? "connecting the ranks"
                                                           : "launching";
  return FailAlone(
      absl::DeadlineExceededError(absl::StrFormat("timed out after %.3g s %s, and NCCL does not say for whom it waited",
                                                  std::chrono::duration<double>(*call_.call.timeout).count(), doing)));
}

bool Operation::End(absl::Status status) {
  // After an abort kernels may be at work on the tensors for a moment longer: what the caller does to them comes after.
  if (!status.ok() && queued_) (void)HaveCallerWait();
  status_ = std::move(status);
  state_ = State::kEnded;
  agreement_.reset();
  return true;
}

std::string Operation::Context() const {
  return absl::StrCat(Describe(signature_), " by NCCL");
}

}  // namespace gyre::internal::nccl
