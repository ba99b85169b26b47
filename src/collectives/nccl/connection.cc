#include "collectives/nccl/connection.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/status.h"

namespace gyre::internal::nccl {

Connection::Connection(Api& api, std::shared_ptr<device::Gpu> gpu, int rank, int size)
    : api_(api), gpu_(std::move(gpu)), rank_(rank), size_(size) {}

Connection::~Connection() {
  End();
}

void Connection::End() {
  const TimePoint patience = std::chrono::steady_clock::now() + kPatience;
  std::lock_guard lock(mutex_);
  if (std::exchange(ended_, true)) return;
  if (!EndInOrder(patience)) AbortLocked();
  comm_.reset();
  state_ = State::kAborted;
  // After an abort kernels leave the GPU in a moment. If they do not, nothing more is waited for.
  const TimePoint limit = std::max(patience, std::chrono::steady_clock::now() + kPatience / 10);
  absl::Status settled = SettleLocked();
  while (settled.ok() && !flights_.empty() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
    settled = SettleLocked();
  }
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
  if (state_ == State::kReady) return true;
  ASSIGN_OR_RETURN(const bool done, AskLocked());
  if (done) state_ = State::kReady;
  return done;
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

absl::Status Connection::CheckReadyLocked() const {
  if (state_ == State::kAborted) return WhyAbortedLocked();
  return state_ == State::kReady ? absl::OkStatus()
                                 : absl::FailedPreconditionError("NCCL: the communicator is not ready");
}

absl::Status Connection::LaunchLocked(std::span<const Transfer> group, device::Gpu::Stream stream) {
  state_ = State::kBusy;
  ASSIGN_OR_RETURN(const bool launched, comm_->Launch(group, stream));
  if (launched) state_ = State::kReady;
  return absl::OkStatus();
}

absl::Status Connection::Launch(std::span<const Transfer> group) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckReadyLocked());
  return LaunchLocked(group, stream_);
}

absl::Status Connection::Capture(std::span<const Transfer> group, const std::shared_ptr<device::GpuGraph>& graph,
                                 device::Gpu::Stream stream) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckReadyLocked());
  std::erase_if(graphs_, [](const auto& each) { return each.expired(); });
  graphs_.push_back(graph);
  return LaunchLocked(group, stream);
}

// Without the lock: a launch may have to wait for the GPU, and what waits there for an Abort.
absl::Status Connection::Launch(device::GpuGraph& graph) {
  {
    std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(CheckReadyLocked());
  }
  return graph.Launch(stream_);
}

absl::Status Connection::Register(void* memory, int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (registered_.contains(memory)) return absl::OkStatus();
  RETURN_IF_ERROR(CheckReadyLocked());
  ASSIGN_OR_RETURN(registered_[memory], comm_->Register(memory, bytes));
  return absl::OkStatus();
}

bool Connection::HasRegistered(const void* memory) const {
  std::lock_guard lock(mutex_);
  return registered_.contains(memory);
}

bool Connection::Forget(const void* memory) {
  const TimePoint patience = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    {
      std::lock_guard lock(mutex_);
      const auto found = registered_.find(memory);
      if (found == registered_.end()) return true;
      if (PollLocked().value_or(false)) {
        (void)comm_->Deregister(found->second);
        registered_.erase(found);
        return true;
      }
    }
    if (std::chrono::steady_clock::now() >= patience) return false;
    std::this_thread::yield();
  }
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

void Connection::Abort() {
  std::lock_guard lock(mutex_);
  AbortLocked();
}

void Connection::AbortLocked() {
  DiscardGraphsLocked();
  if (state_ != State::kAborted && comm_ != nullptr) comm_->Abort();
  registered_.clear();
  state_ = State::kAborted;
}

bool Connection::aborted() const {
  std::lock_guard lock(mutex_);
  return state_ == State::kAborted;
}

// To the GPU it may look done while NCCL's threads still send what others wait for: a communicator that is well is not
// to be aborted.
bool Connection::EndInOrder(TimePoint patience) {
  if (state_ != State::kReady) return state_ == State::kNew && comm_ == nullptr;
  const auto go_on = [patience] {
    std::this_thread::yield();
    return std::chrono::steady_clock::now() < patience;
  };
  absl::StatusOr<size_t> unfinished = UnfinishedLocked();
  while (unfinished.ok() && *unfinished > 0 && go_on()) unfinished = UnfinishedLocked();
  if (!unfinished.ok() || *unfinished > 0) return false;
  DiscardGraphsLocked();
  for (const auto& [memory, handle] : std::exchange(registered_, {})) (void)comm_->Deregister(handle);
  absl::StatusOr<bool> ended = comm_->Finalize();
  while (ended.ok() && !*ended && go_on()) ended = comm_->Poll();
  return ended.ok() && *ended;
}

}  // namespace gyre::internal::nccl
