// Switchboard: what a hub's thread and the threads that use the hub share: how each peer fares, and the data
// connections that are made and wait to be taken.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/fd.h"
#include "net/acceptor.h"
#include "transport/tcp/peer_address.h"

namespace gyre::tcp {

enum class Fate { kHere, kLeft, kLost };

// A data connection. Shared, so that it stays open while one thread uses it and another shuts it down; only whoever
// took it reads and writes.
using DataConnection = std::shared_ptr<const UniqueFd>;

// Thread-safe. Blocks in WaitUntilUp only.
class Switchboard {
 public:
  explicit Switchboard(int self) : self_(self) {}

  void SetPeers(const std::map<int, PeerAddress>& peers);
  bool Knows(int rank) const;
  std::string NameOf(int rank) const;

  // --- The hub's thread ---

  // A control connection is there.
  void SetUp(int rank);

  // Why there is none yet.
  void SetProblem(int rank, const absl::Status& why);

  // How many connections of the peer have yet to say what they are for.
  void SetArriving(int rank, int count);

  // The peer is no more. False: it had ended before, with another fate. `text` says it all, by name. Its connections
  // yield what they still hold; those of a lost peer that wait to be taken are closed.
  bool End(int rank, Fate fate, std::string text);
  Fate FateOf(int rank) const;
  std::vector<std::pair<int, std::string>> Lost() const;

  // A data connection is there. When too many wait to be taken, the one that has waited longest is closed: true.
  bool Deliver(uint64_t channel, int rank, UniqueFd connection);

  // Closes those of a channel that wait to be taken.
  void Forget(uint64_t channel);

  void SetCounts(const AcceptorCounts& counts);
  AcceptorCounts counts() const;

  // --- Users' threads ---

  // Null: not there yet.
  DataConnection Take(uint64_t channel, int rank);

  // OK while a connection with the peer may still come; else why not, as Streams says it.
  absl::Status WhyNoConnection(int rank) const;

  // How the peer has ended, or this rank's hub; OK while neither has. REQUIRES: the peer is known.
  absl::Status EndOf(int rank) const;

  // The last failure to connect; empty where nothing is known.
  std::string LastProblem(int rank) const;

  // Until there has been a control connection with each of these: kUnavailable as soon as one of them is lost,
  // kDeadlineExceeded names the missing.
  absl::Status WaitUntilUp(std::span<const int> ranks, TimePoint deadline) const;

  // --- The end ---

  // From now on there is nothing: wakes and refuses everybody. The connections stay open until Shutdown.
  void Close();
  // Ends all data connections, after what was sent over them.
  void Shutdown();

 private:
  struct Peer {
    PeerAddress address;
    Fate fate = Fate::kHere;
    std::string text;     // of its end
    std::string problem;  // of connecting to it
    bool up = false;
    int arriving = 0;
    std::vector<std::weak_ptr<const UniqueFd>> taken;
  };
  struct Waiting {
    uint64_t order;
    DataConnection connection;
  };

  absl::Status EndOf(const Peer& peer) const;
  std::string Missing(std::span<const int> ranks) const;
  const Peer* Find(int rank) const;
  std::string Describe(const Peer& peer, int rank) const;

  const int self_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<int, Peer> peers_;
  std::map<std::pair<uint64_t, int>, Waiting> waiting_;  // by channel and peer
  uint64_t next_order_ = 0;
  bool closed_ = false;
  AcceptorCounts counts_;
};

}  // namespace gyre::tcp
