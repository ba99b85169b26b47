#include "runtime/progress.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/thread.h"

namespace gyre::internal {

Progress::Progress(std::shared_ptr<shm::Node> node, shm::WaitPolicy policy)
    : node_(std::move(node)), policy_(policy), spare_waits_(kSleepers) {
  for (std::vector<pollfd>& waits : spare_waits_) waits.reserve(kWaits);
}

Progress::~Progress() {
  Stop();
}

absl::Status Progress::Run(const std::shared_ptr<void>& owner, Lane& lane, Pollable& operation) {
  if (!lane.TryTakeIdle()) {
    // Behind what is queued. The queue lets go of the operation before Wait returns.
    operation.StartClock(std::chrono::steady_clock::now());
    Queue(owner, lane, std::shared_ptr<Pollable>(std::shared_ptr<void>(), &operation));
    Ring();  // whoever drives the lane may sleep beyond this one's deadline
    Wait(operation);
    return operation.status();
  }
  const auto check = [&](TimePoint now) {
    if (lane.CheckQueued(now)) OnEnded();
    return operation.Check(now);
  };
  const auto deadline = [&] { return std::min(operation.deadline(), lane.NextDeadline()); };
  const auto sleep = [&](uint32_t rings, std::chrono::nanoseconds at_most) {
    std::vector<pollfd> waits = TakeWaits();
    const bool nothing_else = operation.AddWaits(waits);
    Sleep(rings, at_most, waits, nothing_else);
    GiveWaits(std::move(waits));
  };
  shm::Await(
      doorbell(), policy_, [&] { return operation.Poll(); }, check, deadline, sleep);
  if (lane.Release()) WakeBackground();
  return operation.status();
}

void Progress::Start(const std::shared_ptr<void>& owner, Lane& lane, std::shared_ptr<Pollable> operation) {
  operation->StartClock(std::chrono::steady_clock::now());
  Queue(owner, lane, operation);
  if (stopped_.load()) return Wait(*operation);
  {
    std::lock_guard lock(mutex_);
    if (!thread_.joinable() && !stopped_.load()) {
      // Without room for a thread the operation goes on whenever somebody waits.
      if (auto thread = StartThread("the progress thread", [this] { Background(); }); thread.ok()) {
        thread_ = *std::move(thread);
      }
    }
  }
  WakeBackground();
}

bool Progress::Nudge(Lane& lane) {
  const shm::Progress progress = lane.Drive(nullptr);
  if (progress == shm::Progress::kNone) Ring();
  if (progress == shm::Progress::kDone) OnEnded();
  return progress != shm::Progress::kNone;
}

void Progress::Ring() {
  doorbell().Ring();
  wakers_.WakeAll();
}

void Progress::Queue(const std::shared_ptr<void>& owner, Lane& lane, std::shared_ptr<Pollable> operation) {
  std::lock_guard lock(mutex_);
  lane.Enqueue(std::move(operation));
  const auto known = std::ranges::find_if(active_, [&](const auto& other) { return other.get() == &lane; });
  if (known == active_.end()) active_.emplace_back(owner, &lane);
  active_count_.store(active_.size());
}

void Progress::WakeBackground() {
  { std::lock_guard lock(mutex_); }  // whoever is about to wait has seen the change, or waits already
  wake_.notify_one();
  Ring();
}

// For all that is queued.
template <typename Poll, typename Check>
void Progress::AwaitAll(const shm::WaitPolicy& policy, const Poll& poll, const Check& check) {
  const auto sleep = [this](uint32_t rings, std::chrono::nanoseconds at_most) {
    std::vector<pollfd> waits = TakeWaits();
    const bool nothing_else = AddWaits(waits);
    Sleep(rings, at_most, waits, nothing_else);
    GiveWaits(std::move(waits));
  };
  shm::Await(
      doorbell(), policy, poll, check, [this] { return NextDeadline(); }, sleep);
}

void Progress::Wait(Pollable& operation) {
  WaitUntil([&] { return operation.done(); });
}

void Progress::WaitUntil(absl::FunctionRef<bool()> reached) {
  helpers_.fetch_add(1);
  const auto poll = [&] {
    if (reached()) return shm::Progress::kDone;
    const shm::Progress progress = DriveAll(nullptr);
    return reached() ? shm::Progress::kDone : progress;
  };
  const auto check = [&](TimePoint now) {
    DriveAll(&now);
    return reached();
  };
  AwaitAll(policy_, poll, check);
  helpers_.fetch_sub(1);
  // Others may sleep because this thread drove their lane when they looked.
  if (active_count_.load() != 0) WakeBackground();
}

Progress::Lanes Progress::ActiveLanes() {
  std::lock_guard lock(mutex_);
  return {active_.begin(), active_.end()};
}

shm::Progress Progress::DriveAll(const TimePoint* now) {
  if (active_count_.load() == 0) return shm::Progress::kNone;
  const Lanes lanes = ActiveLanes();
  auto result = shm::Progress::kNone;
  bool ended = false;
  for (const auto& lane : lanes) {
    const shm::Progress progress = lane->Drive(now);
    if (progress != shm::Progress::kNone) result = shm::Progress::kSome;
    ended = ended || progress == shm::Progress::kDone;
  }
  if (ended) OnEnded();
  return result;
}

// Queued operations have ended.
void Progress::OnEnded() {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(active_, [](const auto& lane) { return lane->empty(); });
    active_count_.store(active_.size());
  }
  Ring();  // for whoever waits for what has ended
}

TimePoint Progress::NextDeadline() {
  TimePoint next = TimePoint::max();
  std::lock_guard lock(mutex_);
  for (const auto& lane : active_) next = std::min(next, lane->NextDeadline());
  return next;
}

bool Progress::AddWaits(std::vector<pollfd>& waits) {
  const Lanes lanes = ActiveLanes();
  bool nothing_else = true;
  for (const auto& lane : lanes) nothing_else = lane->AddWaits(waits) && nothing_else;
  return nothing_else;
}

// Lists that have had their memory before, for sleeps allocate nothing.
std::vector<pollfd> Progress::TakeWaits() {
  std::lock_guard lock(mutex_);
  if (spare_waits_.empty()) return {};
  std::vector<pollfd> waits = std::move(spare_waits_.back());
  spare_waits_.pop_back();
  return waits;
}

void Progress::GiveWaits(std::vector<pollfd> waits) {
  waits.clear();
  std::lock_guard lock(mutex_);
  spare_waits_.push_back(std::move(waits));
}

// Until the doorbell rings or a descriptor is ready. One thread cannot wait for both: while it waits for descriptors,
// threads of this process wake it by one more of these. Other ranks of the host cannot, nor can the monitor: it looks
// now and then, often where ranks may be about to ring.
void Progress::Sleep(uint32_t rings, std::chrono::nanoseconds at_most, std::vector<pollfd>& waits, bool nothing_else) {
  if (waits.empty()) return shm::SleepOnDoorbell(doorbell(), rings, at_most);
  const int waker = wakers_.Take();
  if (waker >= 0) waits.push_back({.fd = waker, .events = POLLIN, .revents = 0});
  // Who has rung before the waker was taken did not wake it.
  if (doorbell().rings.load() == rings) {
    const std::chrono::nanoseconds longest =
        nothing_else ? std::chrono::milliseconds(20) : std::chrono::milliseconds(1);
    const timespec timeout{.tv_sec = 0, .tv_nsec = std::min(at_most, longest).count()};
    ppoll(waits.data(), waits.size(), &timeout, nullptr);
  }
  wakers_.Give(waker);
}

bool Progress::MayRest() const {
  return stopped_.load() || active_count_.load() == 0 || helpers_.load() != 0;
}

void Progress::Background() {
  const auto poll = [this] { return MayRest() ? shm::Progress::kDone : DriveAll(nullptr); };
  const auto check = [this](TimePoint now) {
    DriveAll(&now);
    return MayRest();
  };
  while (!stopped_.load()) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopped_.load() || !MayRest(); });
    }
    AwaitAll(shm::WaitPolicy::Background(), poll, check);
    if (helpers_.load() != 0) Ring();  // who helps may sleep because this thread drove its lane when it looked
  }
}

void Progress::Stop() {
  std::thread thread;
  {
    std::lock_guard lock(mutex_);
    stopped_.store(true);
    thread = std::move(thread_);
  }
  WakeBackground();
  if (thread.joinable()) thread.join();
  // What is queued ends now: every check finds the node closed. Lanes that other threads drive, they end.
  while (active_count_.load() != 0) {
    const TimePoint now = std::chrono::steady_clock::now();
    if (DriveAll(&now) == shm::Progress::kNone) sched_yield();
  }
}

}  // namespace gyre::internal
