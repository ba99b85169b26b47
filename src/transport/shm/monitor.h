// Monitor: the thread that watches a rank's peers on this host: their sockets, their processes (a child without exec
// keeps its parent's sockets open) and what they write to their control blocks. Sleeps but for a heartbeat every
// interval.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "transport/shm/control_block.h"
#include "transport/shm/heartbeat_judge.h"

namespace gyre::shm {

// How a peer was lost.
enum class PeerFate {
  kLeft,
  kDied,
  kStopped,  // silent for the time-out, held up by a signal or a debugger
  kSilent,   // silent for kPatience time-outs; for one, where its process cannot be seen
};

// A process that nothing holds up is starved of its processor and comes back, as a rule, so silence alone is no loss
// before this many time-outs (docs/gotchas.md).
inline constexpr int kPatience = 10;

class Monitor {
 public:
  struct Peer {
    int socket;   // borrowed; must outlive the monitor
    int process;  // a pidfd, likewise; or -1
    const ControlBlock* block;
  };

  // Called on the monitor's thread.
  struct Events {
    std::function<void(int peer, PeerFate fate)> on_gone;  // at most once a peer, with its index in Start's list
    std::function<void()> on_beat;                         // after each heartbeat
  };

  // Starts the thread, which beats in `own`. timeout 0: silence is never a loss.
  static absl::StatusOr<std::unique_ptr<Monitor>> Start(std::vector<Peer> peers, ControlBlock& own, Duration interval,
                                                        Duration timeout, Events events);

  // Stops and joins the thread; no event is under way afterwards. Must not run on the monitor's thread.
  ~Monitor();

 private:
  Monitor(std::vector<Peer> peers, ControlBlock& own, Duration interval, Duration timeout, Events events);

  absl::Status Open(Duration interval);
  void Run();
  void Beat();
  void Judge(int peer);
  void SocketReady(int peer);
  void ProcessEnded(int peer);
  void Ended(int peer);
  void Gone(int peer, PeerFate fate);

  const std::vector<Peer> peers_;
  ControlBlock& own_;
  const Duration timeout_;
  const Events events_;
  HeartbeatJudge judge_;
  std::vector<bool> gone_;
  UniqueFd epoll_;
  UniqueFd timer_;
  UniqueFd stop_;
  std::thread thread_;
};

}  // namespace gyre::shm
