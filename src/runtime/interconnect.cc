#include "runtime/interconnect.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "net/interfaces.h"
#include "net/rdma_ports.h"
#include "transport/counted_streams.h"
#include "transport/striped_streams.h"

namespace gyre::internal {

namespace {

// Of communicators that this rank does not know (yet).
constexpr size_t kMaxEarlyWords = 1024;

// No communicator's: those have ids from 1, or 64 bits of a hash.
constexpr uint64_t kFitChannel = 0, kReachChannel = ~uint64_t{0};

// A link that takes longer than this to be measured is left to the nominal numbers.
constexpr std::chrono::seconds kMostFitTime{2};

absl::StatusOr<std::string> OwnAddress(const Config& config, const Membership& membership) {
  if (!config.interface) return membership.local_address();
  auto address = FindAddress(*config.interface);
  if (!address.ok()) return Annotate(address.status(), absl::StrCat("GYRE_INTERFACE=", *config.interface));
  return address;
}

// Of the hosts but the rank's own.
std::vector<int> OtherFirstRanks(std::span<const Place> places, int rank) {
  std::vector<int> first;
  for (const Place& place : places) {
    if (place.local == 0 && place.host != places[static_cast<size_t>(rank)].host) first.push_back(place.rank);
  }
  return first;
}

bool LeadsMeasurement(std::span<const Place> places, int rank) {
  const Place& own = places[static_cast<size_t>(rank)];
  const int hosts = 1 + std::ranges::max(places, {}, &Place::host).host;
  return own.local == 0 &&
         std::ranges::any_of(MeasuredPairs(hosts), [&own](const auto& pair) { return pair.first == own.host; });
}

}  // namespace

absl::StatusOr<std::shared_ptr<Interconnect>> Interconnect::Listen(const Config& config, const Membership& membership,
                                                                   Logger logger, TimePoint deadline) {
  std::shared_ptr<Interconnect> self(new Interconnect(config, logger));
  ASSIGN_OR_RETURN(const std::string address, OwnAddress(config, membership));
  const HandshakeIdentity identity{
      .job_id = membership.job_id(), .epoch = membership.epoch(), .rank = membership.rank(), .role = Role::kRank};
  const tcp::HubOptions options{.heartbeat_interval = config.heartbeat_interval,
                                .heartbeat_timeout = config.heartbeat_timeout};
  // The hub ends before the interconnect does, and with it the calls.
  Interconnect* const raw = self.get();
  const tcp::HubEvents events{
      .on_lost = [raw](int rank, const std::string& text) { raw->OnLost(rank, text); },
      .on_gave_up =
          [raw](int rank, const std::string& text) {
            raw->node_->LearnGivenUpBy(rank, text);
            raw->PeerEnded();
          },
      .on_left =
          [raw](int rank) {
            raw->node_->LearnDeparture(rank);
            raw->PeerEnded();
          },
      .on_announcement = [raw](int, const tcp::Announcement& announcement) { raw->OnAnnouncement(announcement); },
      .on_call = [raw](int from, const tcp::CallNotice& notice) { raw->OnCall(from, notice); },
      .on_change = [raw] { raw->Ring(); }};
  ASSIGN_OR_RETURN(self->hub_, tcp::Hub::Listen(identity, membership.secret(), Endpoint{address, 0}, options, events,
                                                std::move(logger), deadline));
  self->offer_.endpoint = ToString(self->hub_->endpoint());
  RETURN_IF_ERROR(self->OfferUcx(identity, membership.secret()));
  return self;
}

// Only where it is asked for, or may be chosen: UCX leaves much in a process.
absl::Status Interconnect::OfferUcx(const HandshakeIdentity& identity, const std::string& secret) {
  if (UsableRdmaPorts().empty()) offer_.why_not_rdma = "no active RDMA port that it may use";
  offer_.forced = config_.backend.has_value();
  if (offer_.forced && config_.backend != Backend::kUcx) return absl::OkStatus();
  offer_.why_not_ucx = offer_.why_not_rdma;
  if (!offer_.forced && !offer_.why_not_ucx.empty()) return absl::OkStatus();
  auto ucx = ucx::Transport::Create(identity, secret);
  if (!ucx.ok() && offer_.forced) return Annotate(ucx.status(), "GYRE_BACKEND=ucx");
  if (!ucx.ok()) {
    offer_.why_not_ucx = std::string(ucx.status().message());
    return absl::OkStatus();
  }
  ucx_ = *std::move(ucx);
  offer_.ucx = ucx_->address();
  return absl::OkStatus();
}

Interconnect::~Interconnect() {
  Close();
}

absl::Status Interconnect::Connect(std::shared_ptr<shm::Node> node, const std::vector<RankPlace>& places,
                                   const std::vector<std::string>& contacts, std::span<const int> counterparts,
                                   TimePoint deadline) {
  node_ = std::move(node);
  const std::vector<std::string> names = NamesOf(places);
  RETURN_IF_ERROR(Choose(contacts, names));
  std::map<int, tcp::PeerAddress> peers;
  std::map<int, ucx::Transport::Peer> ucx_peers;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank].host_id == places[static_cast<size_t>(node_->rank())].host_id) continue;
    ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(offers_[rank].endpoint));
    peers[static_cast<int>(rank)] = {std::move(endpoint), names[rank]};
    if (carrier_.ucx) ucx_peers[static_cast<int>(rank)] = {offers_[rank].ucx, names[rank]};
  }
  RETURN_IF_ERROR(hub_->Start(peers));
  if (carrier_.ucx) {
    const absl::Status started = ucx_->Start(ucx_peers, [hub = hub_.get()](int rank) { return hub->EndOf(rank); });
    if (carrier_.forced) RETURN_IF_ERROR(started);
    if (!started.ok()) ucx_failure_ = std::string(started.message());
  }
  return hub_->Connect(counterparts, deadline);
}

absl::Status Interconnect::Choose(const std::vector<std::string>& contacts, const std::vector<std::string>& names) {
  for (const std::string& contact : contacts) {
    ASSIGN_OR_RETURN(CarrierOffer offer, DecodeCarrierOffer(contact));
    offers_.push_back(std::move(offer));
  }
  ASSIGN_OR_RETURN(carrier_, AgreeOnCarrier(offers_, names));
  if (!carrier_.ucx) {
    logger_.Debug(absl::StrCat("data between hosts go by TCP: ", carrier_.why));
    ucx_.reset();  // nothing has been told of it yet
  }
  return absl::OkStatus();
}

absl::Status Interconnect::FitLinks(Membership& membership, std::span<const Place> places, TimePoint deadline) {
  ASSIGN_OR_RETURN(const ForcedAlgorithms forced, ParseForcedAlgorithms(config_.algorithms));
  const NetworkReport own = Measure(forced, places, deadline);
  bytes_sent_.store(0, std::memory_order_relaxed);  // that was no communicator's
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, membership.Gather("models", Encode(own), deadline));
  std::vector<NetworkReport> reports;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(NetworkReport report, DecodeNetworkReport(text));
    reports.push_back(std::move(report));
  }
  ASSIGN_OR_RETURN(const PathModel model, Judge(reports, !forced.nominal));
  logger_.Debug(absl::StrFormat("between hosts: %.1f us, %.2f Gbit/s, %.1f GB/s reduced", model.latency * 1e6,
                                model.bytes_per_second * 8e-9, model.reduced_per_second * 1e-9));
  selector_ = std::make_shared<Selector>(model, forced);
  return absl::OkStatus();
}

NetworkReport Interconnect::Measure(const ForcedAlgorithms& forced, std::span<const Place> places, TimePoint deadline) {
  NetworkReport own{.algorithms = forced.ToString(), .streams = config_.streams, .ucx_failure = ucx_failure_};
  if (forced.nominal) return own;
  own.reduced_per_second = MeasureReduction();
  const TimePoint start = std::chrono::steady_clock::now();
  const auto until = [&](int turns) { return std::min(deadline, start + turns * kMostFitTime); };
  if (ucx_failure_.empty()) own.slowest = MeasureLinks(places, carrier_.ucx, until(1));
  if (!carrier_.compared()) return own;
  // A rank whose UCX did not start is here at once: the others may still wait for it in their first turn.
  own.by_tcp = MeasureLinks(places, false, until(2));
  if (own.ucx_failure.empty() && !own.slowest && LeadsMeasurement(places, node_->rank())) {
    own.ucx_failure = "UCX does not reach the host that it was to be measured with";
  }
  if (own.ucx_failure.empty() && !carrier_.forced) own.ucx_failure = WhomUcxMisses(places, until(3));
  return own;
}

// The measurement has shown some pairs of hosts; the others could be on networks that do not meet. Empty: it reaches
// the first ranks of all.
std::string Interconnect::WhomUcxMisses(std::span<const Place> places, TimePoint deadline) {
  if (places[static_cast<size_t>(node_->rank())].local != 0) return "";
  const std::vector<int> peers = OtherFirstRanks(places, node_->rank());
  const auto streams = Open(true, kReachChannel, peers, false);
  const std::optional<int> missed = FindUnreached(*streams, peers, deadline);
  return missed ? absl::StrCat("UCX does not reach rank ", *missed) : "";
}

// By what data go, and what that does. `measured`: else all numbers are nominal.
absl::StatusOr<PathModel> Interconnect::Judge(const std::vector<NetworkReport>& reports, bool measured) {
  ASSIGN_OR_RETURN(const PathModel model, AgreeOnModel(reports));
  if (!carrier_.compared()) return model;
  ASSIGN_OR_RETURN(const PathModel by_tcp, AgreeOnModel(ByTcp(reports)));
  const std::string against = CaseAgainstUcx(reports, model, by_tcp);
  if (carrier_.forced) {
    if (node_->rank() == *carrier_.without_rdma) {
      logger_.Warn(absl::StrCat("GYRE_BACKEND=ucx, but this rank has ",
                                offers_[static_cast<size_t>(node_->rank())].why_not_rdma, "; between hosts: ",
                                !measured         ? "nothing was measured"
                                : against.empty() ? Compared(model, by_tcp)
                                                  : against));
    }
    return model;
  }
  carrier_.ucx = against.empty();
  if (node_->rank() == 0) {
    logger_.Info(absl::StrCat(
        "data between hosts go by ", carrier_.ucx ? "UCX: " : "TCP: ",
        carrier_.ucx ? absl::StrCat(carrier_.why, measured ? "; " : "", measured ? Compared(model, by_tcp) : "")
                     : against));
  }
  if (carrier_.ucx) return model;
  ucx_->Close();
  return by_tcp;
}

// The slowest link that this rank leads the measurement of. The first ranks of the hosts measure, the others have none.
std::optional<LinkFit> Interconnect::MeasureLinks(std::span<const Place> places, bool by_ucx, TimePoint deadline) {
  const Place& own = places[static_cast<size_t>(node_->rank())];
  if (own.local != 0) return std::nullopt;
  std::vector<int> first;  // by host
  for (const Place& place : places) {
    if (place.local == 0) first.push_back(place.rank);
  }
  const auto streams = Open(by_ucx, kFitChannel, OtherFirstRanks(places, node_->rank()), true);
  std::optional<LinkFit> slowest;  // a host leads one measurement at most
  for (const auto& [leader, follower] : MeasuredPairs(static_cast<int>(first.size()))) {
    if (own.host == leader) slowest = LeadLinkFit(*streams, first[static_cast<size_t>(follower)], deadline);
    if (own.host == follower) FollowLinkFit(*streams, first[static_cast<size_t>(leader)], deadline);
  }
  return slowest;
}

std::shared_ptr<Team> Interconnect::MakeTeam(const std::shared_ptr<Interconnect>& self, std::shared_ptr<Group> local,
                                             std::vector<Place> places, int rank, uint64_t id) {
  const TeamLinks links{.open =
                            [self, id](uint64_t channel, const std::vector<int>& peers) {
                              return self->Open(self->carrier_.ucx, channel, peers, channel == id);
                            },
                        .checksum = self->config_.checksum_data,
                        .announce =
                            [self](uint64_t communicator, const shm::LastWords::Content& words) {
                              self->hub_->Announce({communicator, words.code, words.rank, words.text});
                            },
                        .tell_call =
                            [self](uint64_t communicator, uint64_t number, const Signature& signature) {
                              self->hub_->TellCall({communicator, number, signature});
                            },
                        .selector = self->selector_};
  auto team = std::make_shared<Team>(std::move(local), std::move(places), rank, id, links);
  const auto early = self->Register(team);
  if (early) team->Break(absl::Status(early->code, early->text), *early);
  self->hub_->Reach(team->Counterparts());  // so that each hears of the other's end, before they exchange anything
  return team;
}

// A channel with one connection a peer; striped, with as many as are configured.
std::unique_ptr<Streams> Interconnect::Open(bool by_ucx, uint64_t channel, const std::vector<int>& peers,
                                            bool striped) {
  const auto open = [&](uint64_t number) -> std::unique_ptr<Streams> {
    return std::make_unique<CountedStreams>(by_ucx ? ucx_->Open(number, peers) : hub_->Open(number, peers),
                                            bytes_sent_);
  };
  if (!striped || config_.streams == 1) return open(channel);
  std::vector<std::unique_ptr<Streams>> channels;
  for (int stripe = 0; stripe < config_.streams; ++stripe) {
    const uint64_t what[] = {channel, static_cast<uint64_t>(stripe)};
    channels.push_back(open(XXH3_64bits(what, sizeof(what))));
  }
  return std::make_unique<StripedStreams>(std::move(channels));
}

// Returns why the team is broken already.
std::optional<shm::LastWords::Content> Interconnect::Register(const std::shared_ptr<Team>& team) {
  std::lock_guard lock(mutex_);
  std::erase_if(teams_, [](const auto& entry) { return entry.second.expired(); });
  teams_[team->id()] = team;
  const auto early = std::ranges::find(early_, team->id(), &EarlyWord::communicator);
  if (early == early_.end()) return std::nullopt;
  auto words = std::move(early->words);
  early_.erase(early);
  return words;
}

void Interconnect::TellLoss(int rank, const std::string& text) {
  hub_->ReportLoss(rank, text);
}

void Interconnect::PassOnBreaks() {
  std::vector<std::shared_ptr<Team>> teams;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, known] : teams_) {
      if (auto team = known.lock()) teams.push_back(std::move(team));
    }
  }
  for (const auto& team : teams) team->PassOnBreak();
}

void Interconnect::OnLost(int rank, const std::string& text) {
  node_->LearnLoss(rank, text);
  PeerEnded();
}

void Interconnect::OnAnnouncement(const tcp::Announcement& announcement) {
  if (announcement.rank >= 0) node_->LearnLoss(announcement.rank, announcement.text);
  const EarlyWord word{announcement.communicator, {announcement.rank, announcement.text, announcement.code}};
  if (const auto team = FindOrKeep(word)) team->Break(absl::Status(word.words.code, word.words.text), word.words);
  Ring();
}

// Of a communicator that is not there yet, or not any more, it says nothing: who waits says it again.
void Interconnect::OnCall(int from, const tcp::CallNotice& notice) {
  std::shared_ptr<Team> team;
  {
    std::lock_guard lock(mutex_);
    const auto found = teams_.find(notice.communicator);
    if (found != teams_.end()) team = found->second.lock();
  }
  if (team == nullptr) return;
  team->HeardOfCall(from, notice.number, notice.signature);
  Ring();
}

// The team that the word is for; null, and the word kept, where there is none.
std::shared_ptr<Team> Interconnect::FindOrKeep(const EarlyWord& word) {
  std::lock_guard lock(mutex_);
  const auto found = teams_.find(word.communicator);
  if (found != teams_.end()) return found->second.lock();
  if (std::ranges::find(early_, word.communicator, &EarlyWord::communicator) != early_.end()) return nullptr;
  early_.push_back(word);
  if (early_.size() > kMaxEarlyWords) early_.pop_front();
  return nullptr;
}

void Interconnect::Ring() {
  node_->block(node_->rank()).doorbell.Ring();
}

// For the hub's thread, which runs once the hub was started: as a stream may have ended, who sleeps for one looks
// again.
void Interconnect::PeerEnded() {
  Ring();
  if (ucx_ != nullptr) ucx_->Wake();
}

void Interconnect::Close() {
  if (hub_ == nullptr) return;         // it could not listen
  PassOnBreaks();                      // before the goodbye, which would be taken for the cause
  if (ucx_ != nullptr) ucx_->Close();  // likewise: what was sent before arrives before
  hub_->Close();
}

}  // namespace gyre::internal
