// Node: this rank and its peers on the host: their memory, and whether they live.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process_mark.h"
#include "transport/shm/control_block.h"
#include "transport/shm/mesh.h"
#include "transport/shm/monitor.h"

namespace gyre::shm {

struct NodeOptions {
  int rank = 0;  // of this process in the job
  int job_size = 1;
  std::vector<std::string> names = {};  // what messages call the job's ranks: "rank 3 on host b"; empty: "rank 3"
  Duration heartbeat_interval = std::chrono::milliseconds(100);
  Duration heartbeat_timeout = std::chrono::milliseconds(1000);  // 0: never

  // Called when a rank of the job, of whichever host, is known to be lost: once a rank, on the thread that found out.
  // Not when one has left in order. Must not block.
  std::function<void(int rank, const std::string& text)> on_loss = {};

  // Called on the monitor's thread every heartbeat interval, where this rank is not alone on its host.
  std::function<void()> on_beat = {};
};

// Thread-safe. Ranks are numbers in the job. Of those on other hosts only losses are known here. What one rank of a
// host knows of losses, all of them know within a heartbeat interval. Memory stays mapped as long as the node lives,
// whatever became of its peers; who may still be reading or writing it holds the node.
class Node {
 public:
  static absl::StatusOr<std::shared_ptr<Node>> Create(const NodeOptions& options, OwnMemory own,
                                                      std::vector<Link> links, Logger logger);
  ~Node();

  int rank() const { return options_.rank; }

  // REQUIRES (all that take a rank): it is on this host.
  ControlBlock& block(int rank) const { return *reinterpret_cast<ControlBlock*>(control(rank)); }
  std::byte* control(int rank) const { return at(rank).control; }
  std::byte* arena_data(int rank) const { return at(rank).arena; }
  int64_t arena_size(int rank) const { return at(rank).arena_bytes; }

  const std::shared_ptr<internal::Arena>& arena() const { return own_.arena; }

  // The process that is this rank, rather than a child of it.
  const ProcessMark& process() const { return own_.arena->process(); }

  // Takes `bytes` of this rank's control segment, zero-filled, for good; returns the offset.
  absl::StatusOr<int64_t> ReserveRegion(int64_t bytes);

  // --- Life and death ---

  struct Loss {
    enum class End : uint8_t {
      kLost,
      kLeft,    // it shut its runtime down
      kGaveUp,  // it takes this rank for lost, which was frozen for too long, say. Nobody else learns that from here
    };

    int rank;
    End end;
    std::string text;  // "rank 2 was lost: its process ended"

    bool left() const { return end == End::kLeft; }
  };

  // How many ranks are gone: a cheap look for waiting loops.
  int losses() const { return loss_count_.load(std::memory_order_acquire); }

  // What became of a rank; empty while it lives.
  std::optional<Loss> LossOf(int rank) const;

  // The first rank known to have ended other than in order: the root cause of what follows it.
  std::optional<Loss> FirstLoss() const;

  // What to say of a peer that has left (its block's `left` is set), whether or not the monitor has noticed. Learns
  // first why it left.
  Loss DepartureOf(int rank);

  // Somebody else tells of another rank of the job, on this host or another, that this rank has not noticed yet: it is
  // lost, has given this rank up, or has left in order.
  void LearnLoss(int rank, const std::string& text);
  void LearnGivenUpBy(int rank, const std::string& text);
  void LearnDeparture(int rank);

  // Leaves: peers see it at once, waiting threads of this rank wake. Idempotent.
  void Close();
  bool closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  struct Member {
    std::byte* control;
    std::byte* arena;
    int64_t arena_bytes;
  };

  Node(const NodeOptions& options, OwnMemory own, std::vector<Link> links, Logger logger);
  std::string NameOf(int rank) const;
  const Member& at(int rank) const { return members_.find(rank)->second; }
  void OnGone(int link, PeerFate fate);
  void OnBeat();
  void AdoptLosses(int rank);
  void Record(const Loss& loss);
  bool Remember(const Loss& loss);

  const NodeOptions options_;
  const OwnMemory own_;
  const Logger logger_;
  std::vector<Link> links_;
  std::map<int, Member> members_;

  mutable std::mutex mutex_;
  std::vector<Loss> lost_;                    // in the order of discovery; guarded by mutex_
  std::map<int, int> adopted_;                // by neighbour: how many of its losses; guarded by mutex_
  int64_t next_region_ = kControlBlockBytes;  // guarded by mutex_
  std::atomic<int> loss_count_{0};
  std::atomic<bool> closed_{false};

  std::mutex close_mutex_;            // held while closing
  std::unique_ptr<Monitor> monitor_;  // guarded by close_mutex_
};

}  // namespace gyre::shm
