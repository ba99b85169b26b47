// Interconnect: this rank's connections with the ranks of other hosts, and the communicators that use them. Absent
// where the job runs on one host.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/config.h"
#include "base/log.h"
#include "bootstrap/membership.h"
#include "collectives/hierarchical/link_fit.h"
#include "collectives/hierarchical/team.h"
#include "runtime/carrier.h"
#include "runtime/network_model.h"
#include "runtime/topology.h"
#include "transport/shm/node.h"
#include "transport/tcp/factory.h"
#include "transport/ucx/factory.h"

namespace gyre::internal {

// Thread-safe after Connect.
class Interconnect {
 public:
  // Listens at the configured interface, or else at the address from which this rank reaches the store.
  static absl::StatusOr<std::shared_ptr<Interconnect>> Listen(const Config& config, const Membership& membership,
                                                              Logger logger, TimePoint deadline);
  ~Interconnect();

  // Where it listens.
  std::string address() const { return offer_.endpoint; }

  // What the others must be told: that, and by what this rank's data could go instead of TCP.
  std::string contact() const { return Encode(offer_); }

  // Blocks until this rank is connected with its counterparts on the other hosts. `contacts`: every rank's. From now on
  // what the network learns of ranks goes to `node`, which must outlive Close. kDeadlineExceeded and kUnavailable
  // name the ranks that were not reached; kInvalidArgument: ranks were given different backends.
  absl::Status Connect(std::shared_ptr<shm::Node> node, const std::vector<RankPlace>& places,
                       const std::vector<std::string>& contacts, std::span<const int> counterparts, TimePoint deadline);

  // What the links between hosts do, as all ranks agree: measured by the first ranks of the hosts in pairs, a few
  // milliseconds each, unless the algorithms are forced to be chosen without. Decides, too, whether UCX carries data
  // where nobody has forced it. After Connect, before the first team. `places`: of all ranks. Blocks.
  // kInvalidArgument: ranks were given different algorithms to use.
  absl::Status FitLinks(Membership& membership, std::span<const Place> places, TimePoint deadline);

  // What FitLinks has made.
  const std::shared_ptr<Selector>& selector() const { return selector_; }

  // A communicator with these ranks (of the job) on several hosts. `local`: the group of those on this host. `id`:
  // agreed among its ranks, unique in the job.
  static std::shared_ptr<Team> MakeTeam(const std::shared_ptr<Interconnect>& self, std::shared_ptr<Group> local,
                                        std::vector<Place> places, int rank, uint64_t id);

  // What the streams of this rank's communicators have taken so far. Any thread.
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

  // A rank of the job, on whichever host, is lost: the other hosts learn it.
  void TellLoss(int rank, const std::string& text);

  // The other hosts learn which communicators were broken within this one.
  void PassOnBreaks();

  // Says goodbye and ends all connections. Idempotent.
  void Close();

 private:
  // The first word of a communicator that this rank has no part in, or not yet: the others may be ahead.
  struct EarlyWord {
    uint64_t communicator;
    shm::LastWords::Content words;
  };

  Interconnect(const Config& config, Logger logger) : config_(config), logger_(std::move(logger)) {}
  std::unique_ptr<Streams> Open(bool by_ucx, uint64_t channel, const std::vector<int>& peers, bool striped);
  absl::Status OfferUcx(const HandshakeIdentity& identity, const std::string& secret);
  absl::Status Choose(const std::vector<std::string>& contacts, const std::vector<std::string>& names);
  NetworkReport Measure(const ForcedAlgorithms& forced, std::span<const Place> places, TimePoint deadline);
  std::optional<LinkFit> MeasureLinks(std::span<const Place> places, bool by_ucx, TimePoint deadline);
  std::string WhomUcxMisses(std::span<const Place> places, TimePoint deadline);
  absl::StatusOr<PathModel> Judge(const std::vector<NetworkReport>& reports, bool measured);
  std::optional<shm::LastWords::Content> Register(const std::shared_ptr<Team>& team);
  std::shared_ptr<Team> FindOrKeep(const EarlyWord& word);
  void OnAnnouncement(const tcp::Announcement& announcement);
  void OnCall(int from, const tcp::CallNotice& notice);
  void OnLost(int rank, const std::string& text);
  void Ring();
  void PeerEnded();

  const Config config_;
  const Logger logger_;
  std::atomic<int64_t> bytes_sent_{0};
  CarrierOffer offer_;                   // this rank's
  std::vector<CarrierOffer> offers_;     // by rank of the job
  CarrierChoice carrier_;                // as all agree: may turn to TCP in FitLinks, stays from then on
  std::string ucx_failure_;              // of its start, where nobody forces it
  std::unique_ptr<ucx::Transport> ucx_;  // null: it is not wanted; outlives the hub, which wakes it
  std::unique_ptr<tcp::Hub> hub_;
  std::shared_ptr<shm::Node> node_;     // set before the hub's first event
  std::shared_ptr<Selector> selector_;  // set before the first team

  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Team>> teams_;  // guarded by mutex_
  std::deque<EarlyWord> early_;                    // likewise; one a communicator, oldest first
};

}  // namespace gyre::internal
