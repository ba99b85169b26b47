// The layout of the first bytes of a rank's control segment, which every rank of the host maps. docs/wire_format.md
// shows it too. Only lock-free atomics and plain bytes: the readers are other processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace gyre::shm {

inline constexpr uint64_t kControlMagic = 0x3165726f43727947;  // "GyrCore1"

// A message that a rank leaves, once, for whoever finds it later: why it gave something up. Written by one thread at a
// time, read by any process.
class LastWords {
 public:
  struct Content {
    int rank;  // in the job: who is to blame, or -1
    std::string text;
    absl::StatusCode code = absl::StatusCode::kAborted;  // of the calls that end because of it
  };

  // The first to write wins.
  void Write(const Content& content);

  std::optional<Content> Read() const;
  bool written() const { return state_.load(std::memory_order_acquire) == kWritten; }

 private:
  static constexpr uint32_t kEmpty = 0, kWriting = 1, kWritten = 2;

  std::atomic<uint32_t> state_;
  int32_t rank_;
  int32_t code_;
  uint32_t length_;
  char text_[496];
};

// The ranks of the job that a rank knows to be lost, in the order in which it learned of them: its neighbours read it,
// as they may have no connection that tells them. Appended to by one thread at a time, read by any process.
class LossLedger {
 public:
  static constexpr int kCapacity = 512;

  // What does not fit is left out.
  void Append(int rank);

  int size() const;
  int rank(int index) const { return ranks_[index].load(std::memory_order_relaxed); }  // REQUIRES: index < size()

 private:
  std::atomic<int32_t> size_;
  std::atomic<int32_t> ranks_[kCapacity];
};

// Where the threads of a rank sleep. Whoever changes something they may wait for rings it.
//
// The order that makes a wake-up impossible to lose: a sleeper counts itself, reads `rings`, looks once more, then
// sleeps while `rings` is unchanged; a ringer makes its change first and looks at `sleepers` second. All four accesses
// are sequentially consistent, so one of the two sees the other.
struct Doorbell {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t> sleepers;

  // Costs one load where nobody sleeps. REQUIRES: the change was made with a sequentially consistent store.
  void Ring() {
    if (sleepers.load(std::memory_order_seq_cst) != 0) Wake();
  }
  void Wake();
};

struct ControlBlock {
  uint64_t magic;
  uint32_t rank;
  alignas(64) std::atomic<uint64_t> beat;  // advanced every heartbeat interval by the owner's monitor
  std::atomic<uint32_t> left;              // 1: the owner shut its runtime down in order
  alignas(64) Doorbell doorbell;
  alignas(64) LastWords verdict;  // the first loss of a rank that the owner noticed
  LossLedger losses;              // all of them; the verdict is written before the first
};

// Communicators' regions begin here.
inline constexpr int64_t kControlBlockBytes = 4096;
static_assert(sizeof(ControlBlock) <= kControlBlockBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace gyre::shm
