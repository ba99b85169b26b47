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
constexpr size_t kToldWords = sizeof(Told) / sizeof(int64_t);
static_assert(sizeof(Told) == kToldWords * sizeof(int64_t));

constexpr int64_t kScratchAlignment = 256;  // bytes: of tensors in scratch memory

int64_t Aligned(int64_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
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
  Await(MakeAgreement());
}

void Operation::Await(std::shared_ptr<Pollable> agreement) {
  agreement_ = std::move(agreement);
  if (agreement_ == nullptr) return;
  agreement_->StartClock(start_ == TimePoint{} ? std::chrono::steady_clock::now() : start_);
}

// That all make this call; and what they find each other by, if they have yet to. Null: nothing to agree on, or they
// have (GpuManner::capturing).
std::shared_ptr<Pollable> Operation::MakeAgreement() {
  if (call_.manner.capturing) return nullptr;
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
  std::vector<int64_t> row(connects ? kIdWords : 0);
  if (connects) std::memcpy(row.data(), id_.data(), sizeof id_);
  const auto told = std::bit_cast<std::array<int64_t, kToldWords>>(Tell());
  row.insert(row.end(), told.begin(), told.end());
  if (call_.call.kind == CallKind::kAllToAll) {
    row.insert(row.end(), call_.call.counts.begin(), call_.call.counts.end());
    row.insert(row.end(), call_.call.receive_counts.begin(), call_.call.receive_counts.end());
  }
  return Gather(row);
}

Told Operation::Tell() const {
  const Call& call = call_.call;
  const bool registered = IsRegistered(call.in.data) || IsRegistered(output());
  return {.places = PlacesOf(call, members().rank(), backend_->memory()),
          .registered = registered ? 1 : 0,
          .scratch = ScratchBytes(call) > 0 ? 1 : 0,
          .largest = LargestTransfer(call)};
}

bool Operation::IsRegistered(const void* data) const {
  const auto piece = backend_->memory().Find(data);
  return piece && connection().HasRegistered(piece->begin);
}

// All ranks' rows.
std::shared_ptr<Pollable> Operation::Gather(std::span<const int64_t> row) {
  const auto size = static_cast<size_t>(members().size());
  rows_.assign(row.size() * size, 0);
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
  std::vector<Told> told(size);
  for (size_t r = 0; r < size; ++r) {
    std::array<int64_t, kToldWords> words{};
    std::ranges::copy(rows.subspan(r * row + before, kToldWords), words.begin());
    told[r] = std::bit_cast<Told>(words);
  }
  concluded_ = Conclude(call_.call.kind, told);
  if (call_.call.kind != CallKind::kAllToAll) return absl::OkStatus();
  std::vector<int64_t> counts;
  for (size_t r = 0; r < size; ++r) {
    const auto of_rank = rows.subspan(r * row + before + kToldWords, 2 * size);
    counts.insert(counts.end(), of_rank.begin(), of_rank.end());
  }
  return Annotate(CountsAgree(counts, members().size()), Context());
}

// What this rank needs beside its tensors.
absl::Status Operation::TakeMemory() {
  const bool detours = concluded_.detours && Tell().registered != 0;
  const int64_t bytes = Aligned(ScratchBytes(call_.call)) + (detours ? kDetourBytes : 0);
  if (bytes == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(void* const scratch, backend_->Scratch(bytes));
  scratch_ = static_cast<std::byte*>(scratch);
  return absl::OkStatus();
}

// A rank without room ends the call on all of them, and nothing else.
absl::Status Operation::TakeWhoHasMemory() const {
  if (!has_memory_->ok()) return Annotate(*has_memory_, Context());
  const auto without = std::ranges::find(rows_, 0);
  if (without == rows_.end()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(Context(), ": rank ", without - rows_.begin(), " has no room for it on its GPU"));
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
    if (absl::Status agree = has_memory_ ? TakeWhoHasMemory() : TakeRows(); !agree.ok()) {
      End(std::move(agree));
      return shm::Progress::kDone;
    }
    if (!has_memory_ && concluded_.takes_memory && !call_.replays()) {
      has_memory_ = TakeMemory();
      const std::array<int64_t, 1> has = {has_memory_->ok() ? 1 : 0};
      Await(Gather(has));
      return shm::Progress::kSome;
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
  if (rounds_left_ > 0) {
    RETURN_IF_ERROR(EndRound());
    if (rounds_left_ > 0) {
      RETURN_IF_ERROR(LaunchRound());
      return true;
    }
  }
  RETURN_IF_ERROR(Finish());
  End(absl::OkStatus());
  return true;
}

absl::Status Operation::Launch() {
  const int rank = members().rank(), size = members().size();
  if (call_.manner.capturing) {
    RETURN_IF_ERROR(Register());
    plan_ = PlanOf(call_.call, rank, size, nullptr);
    return connection().Capture(plan_.group, call_.manner.graph, stream());
  }
  if (call_.replays()) {
    RETURN_IF_ERROR(AwaitCaller());
    return connection().Launch(*call_.manner.graph);
  }
  RETURN_IF_ERROR(Register());
  if (scratch_ == nullptr) RETURN_IF_ERROR(TakeMemory());  // where ranks have not met
  RETURN_IF_ERROR(AwaitCaller());
  plan_ = PlanOf(call_.call, rank, size, scratch_, concluded_.detours);
  if (plan_.copy_from != nullptr) RETURN_IF_ERROR(gpu().Copy(scratch_, plan_.copy_from, plan_.copy_bytes, stream()));
  if (!concluded_.detours) return connection().Launch(plan_.group);
  rounds_left_ = DetourRounds(concluded_.largest, size);
  return LaunchRound();
}

// From here on there is work of this call.
absl::Status Operation::AwaitCaller() {
  queued_ = true;
  if (call_.input_ready != nullptr) RETURN_IF_ERROR(gpu().Wait(stream(), call_.input_ready));
  if (call_.output_ready == nullptr || call_.output_ready == call_.input_ready) return absl::OkStatus();
  return gpu().Wait(stream(), call_.output_ready);
}

// Memory that lies alike on all ranks.
absl::Status Operation::Register() {
  if (!concluded_.registers && !call_.manner.same_place) return absl::OkStatus();
  for (const void* const data : {call_.call.in.data, output()}) {
    if (const auto piece = backend_->memory().Find(data); piece) {
      RETURN_IF_ERROR(connection().Register(piece->begin, piece->bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status Operation::LaunchRound() {
  std::byte* const room = scratch_ == nullptr ? nullptr : scratch_ + Aligned(ScratchBytes(call_.call));
  detour_ = DetourRoundOf(plan_.group, round_++, members().size(), room,
                          [this](const void* data) { return IsRegistered(data); });
  for (const auto& move : detour_.before) RETURN_IF_ERROR(gpu().Copy(move.to, move.from, move.bytes, stream()));
  return connection().Launch(detour_.group);
}

absl::Status Operation::EndRound() {
  for (const auto& move : detour_.after) RETURN_IF_ERROR(gpu().Copy(move.to, move.from, move.bytes, stream()));
  if (--rounds_left_ == 0) return absl::OkStatus();
  if (deadline_ == TimePoint{}) StartClock(std::chrono::steady_clock::now());
  return connection().Watch(deadline_, Context()).status();  // as a call: the GPU is given so many at most
}

// What NCCL left to do, and the caller's streams wait for all of it.
absl::Status Operation::Finish() {
  if (plan_.finished.count > 0) {
    const std::array<const void*, 1> source = {plan_.finished.data};
    const std::array<void*, 1> destination = {plan_.finished.data};
    RETURN_IF_ERROR(gpu().Reduce(plan_.finish, source, destination, plan_.finished.count, stream()));
  }
  if (call_.manner.capturing) return absl::OkStatus();
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
