// Replication: each server's state is also held by the next server of the ring, so that what workers were told is
// acknowledged survives the loss of a server with its disk (chains of two, after van Renesse and Schneider, Chain
// Replication, OSDI 2004, section 3; for parameter servers Li et al., OSDI 2014, section 4.3).
//
// A server numbers the changes of its state and forwards them in order; the next one applies the same changes to a copy
// and confirms them. Who has no copy of a state asks for it, piece by piece: the next server, where it or the server is
// new; and a server that starts anew, for its own. There is no master: what a server may tell its workers waits until
// the next one has confirmed it, however long that is away. docs/parameter_server.md says what that promises.
//
// Three state machines, of one server's thread each: Forwarder (of a server's own state), Recovery (the same, when it
// starts anew) and Follower (of the state of the server before). Nothing blocks; no message makes them fail.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "ps/interfaces.h"
#include "ps/options.h"
#include "ps/shard.h"
#include "ps/wire.h"

namespace gyre::ps {

// Peers of a server's ring. Of two servers each is on both sides of the other.
enum Side : int { kBefore = 0, kNext = 1 };

struct ReplicaOptions {
  uint64_t epoch = 0;
  uint64_t incarnation = 1;  // this server's
  Timing timing{};
  size_t piece_bytes = size_t{1} << 20;  // of a state, at most, in one message
  Guards guards{};
};

class Forwarder {
 public:
  struct State {
    std::string bytes;                            // EncodeWhole
    std::vector<std::map<int, uint64_t>> next{};  // by slot, by worker: what it has of their pushes
  };

  // What is given by reference outlives it.
  Forwarder(ReplicaOptions options, size_t slots, const Clock& clock, Network& ring);

  // The state has changed: of `change` kind, entry and what belongs to it. Kept until it is confirmed.
  void Append(Message change);

  // The next server asks for the state; `save` makes it.
  void Fetch(const Message& fetch, const std::function<State()>& save);

  struct Confirmed {
    bool begins = false;                        // there is a copy now, and was none before
    std::vector<std::pair<int, int>> pushes{};  // slot and worker, of whose pushes more are confirmed
  };
  Confirmed Confirm(const Message& confirm);

  // The state came from the next server: it has so much of the pushes.
  void Adopt(std::vector<std::map<int, uint64_t>> next) { confirmed_ = std::move(next); }

  // A way to the next server has opened.
  void Reach();

  void Tick();
  TimePoint NextTick() const;

  // The next server has a copy and is told what changes.
  bool following() const { return following_; }
  // Before this, the worker's pushes are at the next server as well.
  uint64_t Next(int slot, int worker) const;
  uint64_t position() const { return position_; }  // the last change's number; from 1

 private:
  struct Change {
    Message message;
    std::string text;  // the message's
  };
  bool Hear(uint64_t incarnation);  // false: of the past
  void Send(const Change& change);
  void SendAll();

  const ReplicaOptions options_;
  const Clock& clock_;
  Network& ring_;
  uint64_t next_life_ = 0;  // the next server's incarnation
  uint64_t request_ = 0;    // its last one
  std::optional<State> state_;
  uint64_t state_position_ = 0;
  bool following_ = false;
  uint64_t position_ = 0;
  std::deque<Change> log_;  // not confirmed
  std::vector<std::map<int, uint64_t>> confirmed_;
  TimePoint next_beat_{}, next_resend_{};
};

class Recovery {
 public:
  Recovery(ReplicaOptions options, const Clock& clock, Network& ring);

  // True once it is known what the next server has.
  bool Take(const Message& piece);
  // Then: EncodeWhole's bytes, or nothing where it has no copy.
  const std::optional<std::string>& state() const { return state_; }

  void Reach() { next_ask_ = clock_.Now(); }
  void Tick();
  TimePoint NextTick() const { return next_ask_; }

 private:
  void Ask();

  const ReplicaOptions options_;
  const Clock& clock_;
  Network& ring_;
  uint64_t life_ = 0;  // of who answers
  uint64_t request_ = 1;
  std::optional<std::string> state_{""};
  TimePoint next_ask_{};
};

class Follower {
 public:
  // `make`: new shards, for the state of the server before. `layout`: Layout::fingerprint.
  Follower(ReplicaOptions options, uint64_t layout, std::function<std::vector<Shard>()> make, const Clock& clock,
           Network& ring);

  // From the server before. `holds_place`: whether no other process has taken this one's place; asked where it matters.
  void Receive(const Message& message, const std::function<bool()>& holds_place);

  bool has_copy() const { return copy_.has_value(); }
  // REQUIRES: has_copy()
  std::span<const Shard> shards() const { return copy_->shards; }
  uint64_t life() const { return copy_->life; }          // whose state it is
  uint64_t position() const { return copy_->position; }  // the last change that it has

 private:
  struct Copy {
    uint64_t life = 0, request = 0, position = 0;
    std::string roster;
    std::vector<Shard> shards;
  };
  struct Fetching {
    uint64_t request = 0;
    std::string bytes;
    TimePoint asked{};
  };
  struct Giving {
    uint64_t request = 0;
    std::optional<std::string> bytes;
  };
  void Give(const Message& fetch);
  void TakeChange(const Message& change);
  bool Apply(const Message& change);
  void TakePiece(const Message& piece);
  void Ask();
  void Confirm();
  void Send(Message message);

  const ReplicaOptions options_;
  const uint64_t layout_;
  const std::function<std::vector<Shard>()> make_;
  const Clock& clock_;
  Network& ring_;
  uint64_t life_ = 0;  // the newest of the server before
  uint64_t requests_ = 0;
  std::optional<Copy> copy_;          // whole; perhaps of an earlier life, until that of this one is whole
  std::optional<Fetching> fetching_;  // that of this life
  std::optional<Giving> giving_;      // of this life's request
};

}  // namespace gyre::ps
