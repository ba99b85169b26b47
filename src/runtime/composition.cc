#include "runtime/composition.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bootstrap/secret.h"
#include "collectives/selection/algorithms.h"
#include "transport/shm/mesh.h"

namespace gyre::internal {

namespace {

int64_t MachineMemory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

// All ranks' places, this one's mesh listening at `address`.
absl::StatusOr<std::vector<RankPlace>> ExchangePlaces(Membership& membership, const Config& config,
                                                      const std::string& address, TimePoint deadline) {
  RankPlace own = ThisPlace(config.host_id.value_or(""));
  own.address = address;
  own.traced = config.timeline.has_value();
  ASSIGN_OR_RETURN(std::vector<std::string> texts, membership.Gather("places", Encode(own), deadline));
  std::vector<RankPlace> places;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(RankPlace place, DecodeRankPlace(text));
    places.push_back(std::move(place));
  }
  return places;
}

JobAccess AccessOf(const Membership& membership) {
  return {.job_id = membership.job_id(),
          .secret = membership.secret(),
          .epoch = membership.epoch(),
          .rank = membership.rank(),
          .size = membership.size()};
}

// Of the other ranks on this one's host.
std::vector<shm::Mesh::Address> PeerAddresses(const std::vector<RankPlace>& places, const std::vector<int>& hosts,
                                              int self) {
  std::vector<shm::Mesh::Address> peers;
  for (int rank = 0; rank < static_cast<int>(places.size()); ++rank) {
    const auto index = static_cast<size_t>(rank);
    if (rank != self && hosts[index] == hosts[static_cast<size_t>(self)])
      peers.push_back({rank, places[index].address});
  }
  return peers;
}

}  // namespace

absl::StatusOr<std::shared_ptr<RuntimeState>> RuntimeState::Join(const Config& config, const Environment& environment) {
  std::shared_ptr<RuntimeState> state(new RuntimeState(config));
  const TimePoint deadline = DeadlineAfter(std::chrono::steady_clock::now(), config.start_timeout);
  RETURN_IF_ERROR(state->Connect(environment, deadline));
  RETURN_IF_ERROR(state->MakeWorld(deadline));
  return state;
}

absl::Status RuntimeState::Connect(const Environment& environment, TimePoint deadline) {
  RETURN_IF_ERROR(ParseForcedAlgorithms(config_.algorithms).status());  // a wrong one is refused on a single host too
  if (config_.backend == Backend::kUcx) RETURN_IF_ERROR(Annotate(ucx::CheckModule(), "GYRE_BACKEND=ucx"));  // likewise
  ASSIGN_OR_RETURN(membership_, Membership::Join(config_, environment, deadline));
  job_ = AccessOf(*membership_);
  const int rank = job_.rank, size = job_.size;
  logger_ = MakeLogger(config_.log_level, absl::StrCat("rank ", rank));
  if (membership_->apart()) return ComeBack();
  const int64_t arena_bytes = config_.arena_bytes > 0 ? config_.arena_bytes : DefaultArenaBytes(MachineMemory(), size);
  ASSIGN_OR_RETURN(shm::OwnMemory own, shm::OwnMemory::Create(rank, arena_bytes));
  hosts_.assign(static_cast<size_t>(size), 0);
  if (size > 1) {
    RETURN_IF_ERROR(ConnectPeers(environment, std::move(own), deadline));
  } else {
    RETURN_IF_ERROR(StartNode(std::move(own), {}, {}));
  }
  // Between hosts each look is a system call, which a yield beside it hardly lengthens; and other ranks, in containers
  // of their own on the same machine, may be waiting for this very CPU.
  const bool spin = config_.spin.value_or(!crowded_ && interconnect_ == nullptr);
  progress_ = std::make_shared<Progress>(node_, spin ? shm::WaitPolicy::Spinning() : shm::WaitPolicy::Crowded());
  logger_.Debug(absl::StrCat("rank ", rank, " of ", size, " joined by ", membership_->launcher(), "; ",
                             spin ? "waits spin" : "waits yield"));
  return absl::OkStatus();
}

// The others have met without it: what its place was is all that it takes from them.
absl::Status RuntimeState::ComeBack() {
  apart_ = true;
  const int64_t arena_bytes = config_.arena_bytes > 0 ? config_.arena_bytes : DefaultArenaBytes(MachineMemory(), 1);
  ASSIGN_OR_RETURN(shm::OwnMemory own, shm::OwnMemory::Create(0, arena_bytes));
  hosts_.assign(1, 0);
  RETURN_IF_ERROR(StartNode(std::move(own), {}, {}));
  progress_ = std::make_shared<Progress>(node_, shm::WaitPolicy::Crowded());
  logger_.Debug(absl::StrCat("rank ", job_.rank, " of ", job_.size, " came back alone"));
  return absl::OkStatus();
}

absl::Status RuntimeState::ConnectPeers(const Environment& environment, shm::OwnMemory own, TimePoint deadline) {
  const int rank = membership_->rank();
  const HandshakeIdentity self{
      .job_id = membership_->job_id(), .epoch = membership_->epoch(), .rank = rank, .role = Role::kRank};
  std::string directory;  // ranks told to share a host may be in different network namespaces: meet by files
  if (config_.host_id) {
    ASSIGN_OR_RETURN(directory, UserDirectory(environment));
  }
  ASSIGN_OR_RETURN(auto mesh, shm::Mesh::Listen(self, membership_->secret(), directory));
  ASSIGN_OR_RETURN(std::vector<RankPlace> places, ExchangePlaces(*membership_, config_, mesh->address(), deadline));
  RETURN_IF_ERROR(CheckVersions(places));
  // Ranks that were told to share a host are to fail where they cannot.
  const int first = FirstOnHost(places, rank, [&](const std::string& address) {
    return config_.host_id.has_value() || shm::Mesh::IsReachable(address);
  });
  ASSIGN_OR_RETURN(const std::vector<std::string> firsts, membership_->Gather("hosts", absl::StrCat(first), deadline));
  RETURN_IF_ERROR(SeparateHosts(places, firsts));
  hosts_ = HostsOf(places);
  for (const RankPlace& place : places) domains_.push_back(place.domain);
  needs_one_clock_ = *std::ranges::max_element(hosts_) > 0 && std::ranges::all_of(places, &RankPlace::traced);
  std::vector<RankPlace> here;
  std::ranges::copy_if(places, std::back_inserter(here), [&](const RankPlace& place) {
    return place.host_id == places[static_cast<size_t>(rank)].host_id;
  });
  crowded_ = IsCrowded(here);
  ASSIGN_OR_RETURN(auto links, mesh->Connect(PeerAddresses(places, hosts_, rank), own, deadline));
  if (*std::ranges::max_element(hosts_) == 0) return StartNode(std::move(own), std::move(links), {});
  ASSIGN_OR_RETURN(interconnect_, Interconnect::Listen(config_, *membership_, logger_, deadline));
  RETURN_IF_ERROR(StartNode(std::move(own), std::move(links), NamesOf(places)));
  return ConnectHosts(places, deadline);
}

absl::Status RuntimeState::StartNode(shm::OwnMemory own, std::vector<shm::Link> links, std::vector<std::string> names) {
  shm::NodeOptions options{.rank = apart() ? 0 : job_.rank,
                           .job_size = apart() ? 1 : job_.size,
                           .names = std::move(names),
                           .heartbeat_interval = config_.heartbeat_interval,
                           .heartbeat_timeout = config_.heartbeat_timeout};
  if (interconnect_ != nullptr) {
    // Weakly: the interconnect holds the node.
    options.on_loss = [weak = std::weak_ptr(interconnect_)](int rank, const std::string& text) {
      if (const auto interconnect = weak.lock()) interconnect->TellLoss(rank, text);
    };
    options.on_beat = [weak = std::weak_ptr(interconnect_)] {
      if (const auto interconnect = weak.lock()) interconnect->PassOnBreaks();
    };
  }
  ASSIGN_OR_RETURN(node_, shm::Node::Create(options, std::move(own), std::move(links), logger_));
  gpus_.StageIn(node_->arena(), job_.size);
  return absl::OkStatus();
}

// With the ranks of the other hosts that have this one's number on theirs: most of what goes between hosts goes there.
absl::Status RuntimeState::ConnectHosts(const std::vector<RankPlace>& places, TimePoint deadline) {
  ASSIGN_OR_RETURN(const std::vector<std::string> contacts,
                   membership_->Gather("networks", interconnect_->contact(), deadline));
  std::vector<int> ranks(places.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::vector<Place> all = PlacesOf(ranks, hosts_);
  const Place& own = all[static_cast<size_t>(node_->rank())];
  std::vector<int> counterparts;
  for (const Place& place : all) {
    if (place.host != own.host && place.local == own.local) counterparts.push_back(place.rank);
  }
  RETURN_IF_ERROR(interconnect_->Connect(node_, places, contacts, counterparts, deadline));
  return interconnect_->FitLinks(*membership_, all, deadline);
}

std::vector<int> RuntimeState::OnThisHost(std::span<const int> ranks) const {
  std::vector<int> local;
  const int own = hosts_[static_cast<size_t>(node_->rank())];
  std::ranges::copy_if(ranks, std::back_inserter(local),
                       [&](int rank) { return hosts_[static_cast<size_t>(rank)] == own; });
  return local;
}

absl::StatusOr<Meetings> RuntimeState::Meet(const std::vector<int>& ranks, std::span<const int64_t> regions,
                                            uint64_t id) const {
  Meetings meetings;
  const std::vector<int> local = OnThisHost(ranks);
  const GroupLayout layout{.size = static_cast<int>(local.size()), .crowded = crowded_};
  std::vector<int64_t> local_regions;
  std::vector<int> numbers;
  std::vector<Domain> domains;
  for (size_t number = 0; number < ranks.size(); ++number) {
    if (std::ranges::find(local, ranks[number]) == local.end()) continue;
    numbers.push_back(static_cast<int>(number));
    local_regions.push_back(regions[number]);
    if (!domains_.empty()) domains.push_back(domains_[static_cast<size_t>(ranks[number])]);
  }
  ASSIGN_OR_RETURN(meetings.group, Group::Create(node_, local, local_regions, layout, numbers, domains));
  if (local.size() == ranks.size()) return meetings;
  const auto self = std::ranges::find(ranks, node_->rank()) - ranks.begin();
  meetings.team =
      Interconnect::MakeTeam(interconnect_, meetings.group, PlacesOf(ranks, hosts_), static_cast<int>(self), id);
  return meetings;
}

absl::Status RuntimeState::Observe(const ClockOffset& offset) {
  if (apart()) return absl::OkStatus();  // its timeline would take the place of rank 0's
  const int rank = node_->rank();
  const std::vector<int>& here = world_.group->ranks();
  Watched watched{.rank = rank,
                  .size = static_cast<int>(hosts_.size()),
                  .host = hosts_[static_cast<size_t>(rank)],
                  .local_rank = static_cast<int>(std::ranges::find(here, rank) - here.begin()),
                  .address = "127.0.0.1",
                  .track = {}};
  if (interconnect_ != nullptr) {
    ASSIGN_OR_RETURN(const Endpoint listening, ParseEndpoint(interconnect_->address()));
    watched.address = listening.host;
  }
  watched.track = {.rank = rank,
                   .host = ThisPlace("").host_name,
                   .offset_us = std::chrono::duration<double, std::micro>(offset.offset).count(),
                   .offset_uncertainty_us = std::chrono::duration<double, std::micro>(offset.uncertainty).count()};
  ASSIGN_OR_RETURN(observatory_, Observatory::Open(config_, watched, logger_));
  return absl::OkStatus();
}

// The world's region is the first that every rank reserves, so all know where it is.
absl::Status RuntimeState::MakeWorld(TimePoint deadline) {
  constexpr uint64_t kWorldId = 1;
  std::vector<int> ranks(hosts_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const GroupLayout layout{.size = static_cast<int>(OnThisHost(ranks).size())};
  ASSIGN_OR_RETURN(const int64_t region, node_->ReserveRegion(layout.bytes()));
  ASSIGN_OR_RETURN(world_, Meet(ranks, std::vector<int64_t>(ranks.size(), region), kWorldId));
  if (config_.backend == Backend::kMpi && ranks.size() > 1) {
    ASSIGN_OR_RETURN(world_.mpi, mpi::Backend::Load(node_->rank(), static_cast<int>(ranks.size()), deadline));
  }
  return absl::OkStatus();
}

RuntimeState::~RuntimeState() {
  Shutdown();
}

void RuntimeState::Shutdown() {
  if (node_ != nullptr && node_->process().forked()) return;  // the parent goes on
  // If Join failed half-way, not all are there. The node first: its thread uses the interconnect.
  if (node_ != nullptr) node_->Close();
  if (interconnect_ != nullptr) interconnect_->Close();
  if (progress_ != nullptr) progress_->Stop();
  std::lock_guard lock(mutex_);
  membership_.reset();  // its store, where this rank serves it: all who had to meet there have met
}

}  // namespace gyre::internal
