// HubLoop: what a hub's thread does: accepts and makes connections, beats, judges who is lost and tells the others.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "net/acceptor.h"
#include "net/connector.h"
#include "net/event_loop.h"
#include "transport/tcp/arrival.h"
#include "transport/tcp/control_link.h"
#include "transport/tcp/hub.h"
#include "transport/tcp/switchboard.h"

namespace gyre::tcp {

// All on the hub's thread, but for Create, Start and Post.
class HubLoop {
 public:
  // `board` must outlive it.
  static absl::StatusOr<std::unique_ptr<HubLoop>> Create(HandshakeIdentity self, std::string secret, HubOptions options,
                                                         HubEvents events, Logger logger, Switchboard& board);

  // Before Run: from there on connections are accepted. The board knows the peers.
  absl::Status Start(UniqueFd listener, const std::map<int, PeerAddress>& peers);

  // Runs `command` on the hub's thread, soon; not at all once Run has returned. Thread-safe.
  void Post(std::function<void()> command);

  // Returns once a Close has been carried out.
  void Run();

  // Each makes what is not there yet, where this rank is the one that connects. Peers that have ended are left alone.
  void WantControl(int rank);
  void WantData(int rank, uint64_t channel);

  // The channel is closed: gives up what is under way for it and what waits to be taken.
  void ForgetChannel(uint64_t channel);

  void Announce(const Announcement& announcement);
  void TellCall(const CallNotice& notice) { ToAll(FrameType::kCall, Encode(notice)); }
  void ReportLoss(int rank, const std::string& text);
  void Close();

 private:
  struct Peer {
    PeerAddress address;
    std::unique_ptr<ControlLink> link;
    bool up = false;    // it is known to hold the other end of the link
    Duration silent{};  // of this rank's own attention
    std::unique_ptr<Connector> connector;
    std::map<uint64_t, std::unique_ptr<Connector>> data_connectors;  // by channel
    int arriving = 0;
  };
  using Arrivals = std::list<std::unique_ptr<Arrival>>;

  HubLoop(HandshakeIdentity self, std::string secret, HubOptions options, HubEvents events, Logger logger,
          Switchboard& board, std::unique_ptr<EventLoop> loop);
  void RunCommands();
  bool IsHere(int rank) const;

  // --- Connections that others make (hub_accept.cc) ---
  void Accepted(AcceptedPeer accepted);
  absl::Status CheckComer(const HandshakeIdentity& comer) const;
  void Arrived(Arrivals::iterator arrival, absl::StatusOr<Purpose> purpose, UniqueFd fd);
  void DropArrival(Arrivals::iterator arrival);
  void AcceptControl(int rank, UniqueFd fd);
  void ReportStrangers();

  // --- Connections that this rank makes ---
  std::unique_ptr<Connector> Connect(int rank, const Purpose& purpose);
  void Connected(int rank, const Purpose& purpose, absl::StatusOr<gyre::Connected> result);
  absl::Status TellPurpose(int rank, const gyre::Connected& connected, const Purpose& purpose) const;
  void Retry(int rank, const Purpose& purpose, const absl::Status& why);
  void DeliverData(int rank, uint64_t channel, UniqueFd fd);

  // --- Control connections ---
  void Attach(int rank, UniqueFd fd, bool connector);
  void MarkUp(int rank);
  void Received(int rank, const Frame& frame);
  absl::Status Interpret(int rank, const Frame& frame);
  void Heard(int teller, const Loss& loss);
  void GaveUp(int teller, const std::string& why);
  void LinkEnded(int rank, const absl::Status& why);
  void ToAll(FrameType type, const std::string& payload);
  void TellWhatWas(ControlLink& link) const;
  void Tick();

  // --- Ends ---
  void Lose(int rank, absl::string_view why);
  void EndLost(int rank, int reporter, const std::string& text);
  void Leave(int rank);
  void DropConnections(Peer& peer);
  void FinishIfAlone();
  void Changed();

  const HandshakeIdentity self_;
  const std::string secret_;
  const HubOptions options_;
  const HubEvents events_;
  const Logger logger_;
  Switchboard& board_;
  const std::unique_ptr<EventLoop> loop_;
  std::map<int, Peer> peers_;
  std::unique_ptr<AuthenticatingListener> listener_;
  Arrivals arrivals_;                                  // oldest first
  std::vector<std::unique_ptr<ControlLink>> stopped_;  // destroyed between two turns, never within their own callbacks
  std::map<int, std::string> lost_neighbours_;         // of this host: what was said of them
  std::set<int> gave_up_;                              // peers that have given this rank up
  std::deque<std::string> announcements_;              // this rank's, encoded
  TimePoint last_tick_{};
  int64_t strangers_reported_ = 0;
  bool trouble_reported_ = false;
  bool closing_ = false;
  bool done_ = false;

  std::mutex commands_mutex_;
  std::vector<std::function<void()>> commands_;
};

}  // namespace gyre::tcp
