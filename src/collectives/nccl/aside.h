// Aside: a call of NCCL's that may block for as long as other ranks or the GPU like, on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include "base/clock.h"

namespace gyre::internal::nccl {

// Thread-safe.
class Aside {
 public:
  // Makes the call at once; where there is no room for a thread, `what` it is for, here. What `call` holds goes with
  // its end.
  Aside(std::string_view what, std::function<void()> call);
  // Does not wait: where the call goes on it is left behind, with what it holds.
  ~Aside();
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  bool ended() const;

  // Blocks until it has ended, or until `limit`: then false.
  bool Await(TimePoint limit) const;

 private:
  struct State;

  const std::shared_ptr<State> state_;  // the thread's too
  std::thread thread_;
};

}  // namespace gyre::internal::nccl
