#include "collectives/nccl/aside.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/thread.h"

namespace gyre::internal::nccl {

struct Aside::State {
  mutable std::mutex mutex;
  std::condition_variable end;
  bool ended = false;  // guarded by mutex
};

Aside::Aside(std::string_view what, std::function<void()> call) : state_(std::make_shared<State>()) {
  const auto shared = std::make_shared<std::function<void()>>(std::move(call));
  const auto run = [state = state_, shared] {
    std::exchange(*shared, nullptr)();
    const std::lock_guard lock(state->mutex);
    state->ended = true;
    state->end.notify_all();
  };
  if (auto thread = StartThread(what, run); thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    run();
  }
}

Aside::~Aside() {
  if (!thread_.joinable()) return;
  if (ended()) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

bool Aside::ended() const {
  const std::lock_guard lock(state_->mutex);
  return state_->ended;
}

bool Aside::Await(TimePoint limit) const {
  std::unique_lock lock(state_->mutex);
  return state_->end.wait_until(lock, limit, [this] { return state_->ended; });
}

}  // namespace gyre::internal::nccl
