#include "collectives/nccl/connection.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/status.h"
#include "base/thread.h"

namespace gyre::internal::nccl {

namespace {

// False: time is up.
bool GoOn(TimePoint limit) {
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  return std::chrono::steady_clock::now() < limit;
}

}  // namespace

Connection::Connection(Api& api, std::shared_ptr<device::Gpu> gpu, int rank, int size)
    : api_(api), gpu_(std::move(gpu)), rank_(rank), size_(size) {}

Connection::~Connection() {
  End();
}

void Connection::End() {
  const TimePoint patience = std::chrono::steady_clock::now() + kPatience;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
  }
  if (started() && !EndInOrder(patience)) Abort();
  AwaitAsides(std::chrono::steady_clock::now() + kPatience);
  // After an abort kernels leave the GPU in a moment. If they do not, nothing more is waited for.
  const TimePoint limit = std::max(patience, std::chrono::steady_clock::now() + kPatience / 10);
  absl::StatusOr<size_t> unfinished = Unfinished();
  while (unfinished.ok() && *unfinished > 0 && GoOn(limit)) unfinished = Unfinished();
  std::lock_guard lock(mutex_);
  if (!flights_.empty()) return;
  for (void* const memory : std::exchange(kept_, {})) gpu_->Free(memory);
  for (const device::Gpu::Event event : std::exchange(spare_events_, {})) gpu_->DestroyEvent(event);
  if (stream_ != nullptr) gpu_->DestroyStream(std::exchange(stream_, nullptr));
}

void Connection::Keep(void* memory) {
  std::lock_guard lock(mutex_);
  kept_.push_back(memory);
}

bool Connection::started() const {
  std::lock_guard lock(mutex_);
  return state_ != State::kNew;
}

absl::Status Connection::Start(const UniqueId& id) {
  std::lock_guard lock(mutex_);
  if (state_ != State::kNew) return absl::FailedPreconditionError("NCCL: the communicator was begun already");
  ASSIGN_OR_RETURN(stream_, gpu_->CreateStream());
  const SignalsBlocked blocked;  // for NCCL's threads
  ASSIGN_OR_RETURN(comm_, api_.Init(id, rank_, size_, gpu_->ordinal()));
  state_ = State::kBusy;
  return absl::OkStatus();
}

absl::StatusOr<bool> Connection::Poll() {
  std::lock_guard lock(mutex_);
  return PollLocked();
}

absl::StatusOr<bool> Connection::PollLocked() {
  if (state_ == State::kAborted) return WhyAbortedLocked();
  if (state_ == State::kNew) return absl::FailedPreconditionError("NCCL: the communicator was not begun");
  RETURN_IF_ERROR(failure_);
  RETURN_IF_ERROR(TakeUpLocked());
  if (state_ == State::kBusy) {
    ASSIGN_OR_RETURN(const bool done, AskLocked());
    if (done) state_ = State::kReady;
  }
  if (state_ != State::kReady) return false;
  if (flights_.size() < kMostFlights) return true;
  RETURN_IF_ERROR(SettleLocked());
  return flights_.size() < kMostFlights;
}

bool Connection::full() const {
  std::lock_guard lock(mutex_);
  return state_ == State::kReady && flights_.size() >= kMostFlights;
}

// What has waited for the end of forgetting. Whoever looks first does it, and NCCL's answer is for whoever asked.
absl::Status Connection::TakeUpLocked() {
  if (state_ != State::kForgetting || !forgetting_->ended()) return absl::OkStatus();
  state_ = State::kReady;
  for (const auto& each : std::exchange(later_, {})) {
    if (absl::Status status = each(); !status.ok()) return failure_ = std::move(status);
  }
  return absl::OkStatus();
}

// A call and the watch over earlier ones both ask, and NCCL says it to whoever does first.
absl::StatusOr<bool> Connection::AskLocked() {
  absl::StatusOr<bool> done = comm_->Poll();
  if (!done.ok() && failure_.ok()) failure_ = done.status();
  return done;
}

absl::Status Connection::WhyAbortedLocked() const {
  return failure_.ok() ? absl::FailedPreconditionError("NCCL: the communicator was aborted") : failure_;
}

// Forgetting may begin between the caller's Poll and what that was for, which comes later then.
absl::Status Connection::CheckReadyLocked() const {
  if (state_ == State::kAborted) return WhyAbortedLocked();
  const bool ready = state_ == State::kReady || state_ == State::kForgetting;
  return ready ? absl::OkStatus() : absl::FailedPreconditionError("NCCL: the communicator is not ready");
}

absl::Status Connection::LaunchLocked(std::span<const Transfer> group, device::Gpu::Stream stream) {
  if (state_ != State::kForgetting) return LaunchNow(group, stream);
  later_.emplace_back(
      [this, copy = std::vector(group.begin(), group.end()), stream] { return LaunchNow(copy, stream); });
  return absl::OkStatus();
}

absl::Status Connection::LaunchNow(std::span<const Transfer> group, device::Gpu::Stream stream) {
  state_ = State::kBusy;
  ASSIGN_OR_RETURN(const bool launched, comm_->Launch(group, stream));
  if (launched) state_ = State::kReady;
  return absl::OkStatus();
}

absl::Status Connection::Launch(std::span<const Transfer> group) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckReadyLocked());
  capturing_ = false;
  return LaunchLocked(group, stream_);
}

absl::Status Connection::Capture(std::span<const Transfer> group, const std::shared_ptr<device::GpuGraph>& graph,
                                 device::Gpu::Stream stream) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckReadyLocked());
  std::erase_if(graphs_, [](const auto& each) { return each.expired(); });
  graphs_.push_back(graph);
  capturing_ = true;
  return LaunchLocked(group, stream);
}

// Without the lock, and NCCL has no part in it: a launch may have to wait for the program's own, and an Abort must not.
absl::Status Connection::Launch(device::GpuGraph& graph) {
  {
    std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(CheckReadyLocked());
  }
  absl::Status launched = graph.Launch(stream_);
  std::lock_guard lock(mutex_);
  return launched.ok() || state_ != State::kAborted ? launched : WhyAbortedLocked();  // discarded meanwhile
}

absl::Status Connection::Register(void* memory, int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (registered_.contains(memory)) return absl::OkStatus();
  RETURN_IF_ERROR(CheckReadyLocked());
  if (state_ != State::kForgetting) return RegisterNow(memory, bytes);
  later_.emplace_back([this, memory, bytes] { return RegisterNow(memory, bytes); });
  return absl::OkStatus();
}

absl::Status Connection::RegisterNow(void* memory, int64_t bytes) {
  if (registered_.contains(memory)) return absl::OkStatus();
  ASSIGN_OR_RETURN(void* const handle, comm_->Register(memory, bytes));
  registered_[memory] = handle;
  return absl::OkStatus();
}

bool Connection::HasRegistered(const void* memory) const {
  std::lock_guard lock(mutex_);
  return registered_.contains(memory);
}

bool Connection::Forget(const void* memory, TimePoint limit) {
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (!registered_.contains(memory) || GoneLocked()) return true;
    }
    if (const auto forgetting = BeginToForget(memory); forgetting != nullptr) return forgetting->Await(limit);
    if (!GoOn(limit)) return false;
  }
}

// Null: something else is under way.
std::shared_ptr<Aside> Connection::BeginToForget(const void* memory) {
  std::lock_guard lock(mutex_);
  const auto found = registered_.find(memory);
  if (found == registered_.end() || ended_ || !PollLocked().value_or(false)) return nullptr;
  state_ = State::kForgetting;
  forgetting_ = std::make_shared<Aside>("deregistering memory with NCCL",
                                        [comm = comm_, handle = found->second] { (void)comm->Deregister(handle); });
  registered_.erase(found);
  return forgetting_;
}

// Nothing of the communicator is left, nor of what it has registered.
bool Connection::GoneLocked() const {
  return state_ == State::kAborted && (leaving_ == nullptr || leaving_->ended());
}

void Connection::DiscardGraphsLocked() {
  for (const auto& each : std::exchange(graphs_, {})) {
    if (const auto graph = each.lock(); graph != nullptr) graph->Discard();
  }
}

absl::StatusOr<device::Gpu::Event> Connection::Watch(TimePoint deadline, std::string what) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(SettleLocked());  // keeps their number down where nobody else looks
  device::Gpu::Event event = nullptr;
  if (spare_events_.empty()) {
    ASSIGN_OR_RETURN(event, gpu_->CreateEvent());
  } else {
    event = spare_events_.back();
    spare_events_.pop_back();
  }
  flights_.push_back({event, deadline, std::move(what)});
  RETURN_IF_ERROR(gpu_->Record(event, stream_));
  return event;
}

// One stream has one order: what is first is done first.
absl::Status Connection::SettleLocked() {
  while (!flights_.empty()) {
    ASSIGN_OR_RETURN(const bool done, gpu_->Done(flights_.front().event));
    if (!done) break;
    spare_events_.push_back(flights_.front().event);
    flights_.pop_front();
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> Connection::Unfinished() {
  std::lock_guard lock(mutex_);
  return UnfinishedLocked();
}

absl::StatusOr<size_t> Connection::UnfinishedLocked() {
  RETURN_IF_ERROR(SettleLocked());
  if (state_ == State::kForgetting) RETURN_IF_ERROR(TakeUpLocked());
  // While something else is under way, whoever began that asks.
  if (!flights_.empty() && state_ == State::kReady) RETURN_IF_ERROR(AskLocked().status());
  return flights_.size();
}

std::optional<std::string> Connection::Late(TimePoint now) const {
  std::lock_guard lock(mutex_);
  const auto late = std::ranges::find_if(flights_, [now](const Flight& flight) { return now >= flight.deadline; });
  if (late == flights_.end()) return std::nullopt;
  return late->what;
}

TimePoint Connection::NextDeadline() const {
  std::lock_guard lock(mutex_);
  TimePoint next = TimePoint::max();
  for (const Flight& flight : flights_) next = std::min(next, flight.deadline);
  return next;
}

// A thread of NCCL's adds to the graph until the launch is through, and what it has of the graph must be there.
void Connection::Abort() {
  const TimePoint limit = std::chrono::steady_clock::now() + kThrough;
  const auto amid_capture = [this] {
    std::lock_guard lock(mutex_);
    return state_ == State::kBusy && capturing_ && !PollLocked().value_or(true);
  };
  while (amid_capture() && GoOn(limit)) {
  }
  std::lock_guard lock(mutex_);
  AbortLocked();
}

// NCCL waits for graphs that hold its calls, and then for those launches of theirs that the GPU has yet to come to.
void Connection::AbortLocked() {
  DiscardGraphsLocked();
  LeaveLocked(true);
}

// The communicator goes with the call.
void Connection::LeaveLocked(bool aborts) {
  state_ = State::kAborted;
  later_.clear();
  if (comm_ == nullptr) return;
  leaving_ =
      std::make_shared<Aside>("an NCCL communicator's end", [gpu = gpu_, comm = std::exchange(comm_, nullptr), aborts] {
        if (aborts) comm->Abort();
      });
}

void Connection::AwaitAsides(TimePoint limit) const {
  std::unique_lock lock(mutex_);
  const auto leaving = leaving_, forgetting = forgetting_;
  lock.unlock();
  if (leaving != nullptr) leaving->Await(limit);
  if (forgetting != nullptr) forgetting->Await(limit);
}

bool Connection::aborted() const {
  std::lock_guard lock(mutex_);
  return state_ == State::kAborted;
}

// To the GPU it may look done while NCCL's threads still send what others wait for: a communicator that is well is not
// to be aborted. What it has registered goes with it: other ranks are not waited for once more.
bool Connection::EndInOrder(TimePoint patience) {
  absl::StatusOr<bool> begun = BeginToFinalize();
  while (begun.ok() && !*begun && GoOn(patience)) begun = BeginToFinalize();
  if (!begun.value_or(false)) return false;
  absl::StatusOr<bool> ended = Poll();
  while (ended.ok() && !*ended && GoOn(patience)) ended = Poll();
  if (!ended.value_or(false)) return false;
  std::lock_guard lock(mutex_);
  LeaveLocked(false);
  return true;
}

// False: there is work to be done first.
absl::StatusOr<bool> Connection::BeginToFinalize() {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(const bool ready, PollLocked());
  if (state_ == State::kBusy) return absl::FailedPreconditionError("NCCL: something is being launched");
  if (!ready) return false;
  ASSIGN_OR_RETURN(const size_t unfinished, UnfinishedLocked());
  if (unfinished > 0) return false;
  DiscardGraphsLocked();
  state_ = State::kBusy;
  capturing_ = false;
  RETURN_IF_ERROR(comm_->Finalize().status());
  return true;
}

}  // namespace gyre::internal::nccl
