#include "runtime/progress.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/thread.h"

namespace gyre::internal {

Progress::Progress(std::shared_ptr<shm::Node> node, shm::WaitPolicy policy)
    : node_(std::move(node)), policy_(policy) {}

Progress::~Progress() { Stop(); }

absl::Status Progress::Run(const std::shared_ptr<void>& owner, Lane& lane, Pollable& operation) {
  if (!lane.TryTakeIdle()) {
    // Behind what is queued. The queue lets go of the operation before Wait returns.
    operation.StartClock(std::chrono::steady_clock::now());
    Queue(owner, lane, std::shared_ptr<Pollable>(std::shared_ptr<void>(), &operation));
    Wait(operation);
    return operation.status();
  }
  shm::Await(
      doorbell(), policy_, [&] { return operation.Poll(); }, [&](TimePoint now) { return operation.Check(now); });
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
  doorbell().Ring();
}

void Progress::Wait(Pollable& operation) {
  helpers_.fetch_add(1);
  const auto poll = [&] {
    if (operation.done()) return shm::Progress::kDone;
    const shm::Progress progress = DriveAll(nullptr);
    return operation.done() ? shm::Progress::kDone : progress;
  };
  const auto check = [&](TimePoint now) {
    DriveAll(&now);
    return operation.done();
  };
  shm::Await(doorbell(), policy_, poll, check);
  helpers_.fetch_sub(1);
  // Others may sleep because this thread drove their lane when they looked.
  if (active_count_.load() != 0) WakeBackground();
}

shm::Progress Progress::DriveAll(const TimePoint* now) {
  if (active_count_.load() == 0) return shm::Progress::kNone;
  std::vector<std::shared_ptr<Lane>> lanes;
  {
    std::lock_guard lock(mutex_);
    lanes = active_;
  }
  auto result = shm::Progress::kNone;
  bool ended = false;
  for (const auto& lane : lanes) {
    const shm::Progress progress = lane->Drive(now);
    if (progress != shm::Progress::kNone) result = shm::Progress::kSome;
    ended = ended || progress == shm::Progress::kDone;
  }
  if (ended) {
    ForgetIdleLanes();
    doorbell().Ring();  // for whoever waits for what has ended
  }
  return result;
}

void Progress::ForgetIdleLanes() {
  std::lock_guard lock(mutex_);
  std::erase_if(active_, [](const auto& lane) { return lane->empty(); });
  active_count_.store(active_.size());
}

bool Progress::MayRest() const { return stopped_.load() || active_count_.load() == 0 || helpers_.load() != 0; }

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
    shm::Await(doorbell(), shm::WaitPolicy::Background(), poll, check);
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
