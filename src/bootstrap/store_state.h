// StoreState: what the store knows and decides, without sockets, threads or a clock of its own. Requests of numbered
// connections go in, replies come out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "bootstrap/store_protocol.h"
#include "net/framing.h"
#include "net/handshake.h"

namespace gyre {

// Instances: the n-th time that a rank joins, it becomes part of the job's n-th instance (one for each Runtime a
// process makes). Gathers belong to an instance; when a rank's connection ends, its instance has lost it for good, and
// whoever gathers there is told.
//
// Lives: a process that takes the place of one that died says its life, a higher one. Until the ranks have met (the
// first Gather that all have given to), it joins in the place of the one before; after that it is told that it comes
// too late (kAlreadyExists). Where ranks return, one that is lost before they have met has never been there, and
// whoever gathers waits on, for its next life.
//
// A connection waits for one thing at a time: a new request ends an older wait, unanswered.
class StoreState {
 public:
  using ConnectionId = uint64_t;
  struct Reply {
    ConnectionId to;
    uint32_t sequence;
    absl::StatusCode code;
    std::string payload;  // the result, or the error's message
  };

  StoreState(int size, uint64_t epoch, bool ranks_return = false);

  void Connected(ConnectionId id, const HandshakeIdentity& peer);
  void Disconnected(ConnectionId id);
  void Handle(ConnectionId id, const Frame& frame, TimePoint now);

  // So many more were refused before they were anybody's connection, the last one for this reason: whoever waits in
  // vain for ranks that never came is told of it.
  void Refused(int64_t count, absl::Status last);

  // Ends the waits whose time is up. NextExpiry: when to call it; TimePoint::max() if nobody waits.
  void Expire(TimePoint now);
  TimePoint NextExpiry() const;

  // Ends all waits: the store is about to go (kCancelled).
  void Close();

  std::vector<Reply> TakeReplies() { return std::exchange(replies_, {}); }
  size_t stored_bytes() const { return stored_bytes_; }

 private:
  using GatherKey = std::pair<int, std::string>;  // instance, name

  struct Wait {
    uint32_t sequence;
    TimePoint deadline;
    uint32_t timeout_ms;
    std::optional<std::string> key;  // of a Get
    std::optional<GatherKey> gather;
  };
  struct Client {
    HandshakeIdentity peer;
    int instance = -1;  // until it has joined
    std::optional<Wait> wait;
  };
  struct RankState {
    int joined = 0;                     // instances so far
    uint64_t life = 1;                  // of the last that joined
    std::map<int, uint32_t> processes;  // of the instances that are connected
  };
  struct GatherState {
    std::vector<std::optional<std::string>> values;
    std::vector<bool> taken;  // once decided: who has had the result, or will not come for it
    absl::Status failed;      // why there can be no result: then this is it, for all
    int given = 0;
    int taken_count = 0;
    size_t reply_bytes = 0;
    size_t stored_bytes = 0;  // what it counts for in the store's total
    bool Decided() const { return !failed.ok() || given == static_cast<int>(values.size()); }
  };
  using Gathers = std::map<GatherKey, GatherState>;

  void Answer(ConnectionId to, uint32_t sequence, const absl::Status& status, std::string result = {});
  absl::Status Reserve(size_t bytes);  // counts them, or kResourceExhausted

  absl::Status TryJoin(Client& client, const StoreRequest& request);
  void Join(ConnectionId id, Client& client, uint32_t sequence, const StoreRequest& request);
  void Set(ConnectionId id, uint32_t sequence, const StoreRequest& request);
  void Get(ConnectionId id, Client& client, uint32_t sequence, const StoreRequest& request, TimePoint now);
  void Add(ConnectionId id, uint32_t sequence, const StoreRequest& request);
  void Gather(ConnectionId id, Client& client, uint32_t sequence, const StoreRequest& request, TimePoint now);

  absl::Status Put(std::string_view key, std::string_view value);
  absl::Status GiveValue(Gathers::iterator gather, int rank, std::string_view value);
  void TakeBack(Gathers::iterator gather, int rank);
  void Fail(Gathers::iterator gather, absl::Status why);
  void Deliver(Gathers::iterator gather);
  void MarkTaken(Gathers::iterator gather, int rank);
  void Erase(Gathers::iterator gather);
  void LoseRank(int instance, int rank);
  void LoseEarlierLives(int rank);
  std::optional<int> LostRank(int instance) const;
  std::string Missing(const GatherKey& key, std::string_view within = {}) const;
  std::string Refusals() const;
  absl::Status TimedOut(const Wait& wait) const;

  const int size_;
  const uint64_t epoch_;
  const bool ranks_return_;
  bool met_ = false;  // all ranks, once
  std::map<ConnectionId, Client> clients_;
  std::vector<RankState> ranks_;
  std::map<std::string, std::string, std::less<>> values_;
  Gathers gathers_;
  size_t stored_bytes_ = 0;
  int64_t refused_ = 0;
  absl::Status last_refusal_;
  std::vector<Reply> replies_;
};

}  // namespace gyre
