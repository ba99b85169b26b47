#include "runtime/composition.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bootstrap/secret.h"
#include "runtime/topology.h"
#include "transport/shm/mesh.h"

namespace gyre::internal {

namespace {

int64_t MachineMemory() { return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE); }

// All ranks' places, this one's mesh listening at `address`.
absl::StatusOr<std::vector<RankPlace>> ExchangePlaces(Membership& membership, const Config& config,
                                                      const std::string& address, TimePoint deadline) {
  RankPlace own = ThisPlace(config.host_id.value_or(""));
  own.address = address;
  ASSIGN_OR_RETURN(std::vector<std::string> texts, membership.Gather("places", Encode(own), deadline));
  std::vector<RankPlace> places;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(RankPlace place, DecodeRankPlace(text));
    places.push_back(std::move(place));
  }
  return places;
}

std::vector<shm::Mesh::Address> PeerAddresses(const std::vector<RankPlace>& places, int self) {
  std::vector<shm::Mesh::Address> peers;
  for (int rank = 0; rank < static_cast<int>(places.size()); ++rank) {
    if (rank != self) peers.push_back({rank, places[static_cast<size_t>(rank)].address});
  }
  return peers;
}

// The world's region is the first that every rank reserves, so all know where it is.
absl::StatusOr<std::shared_ptr<Group>> MakeWorld(const std::shared_ptr<shm::Node>& node, int size) {
  const GroupLayout layout{.size = size};
  ASSIGN_OR_RETURN(const int64_t region, node->ReserveRegion(layout.bytes()));
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return Group::Create(node, std::move(ranks), std::vector<int64_t>(static_cast<size_t>(size), region), layout);
}

}  // namespace

absl::StatusOr<std::shared_ptr<RuntimeState>> RuntimeState::Join(const Config& config,
                                                                 const Environment& environment) {
  std::shared_ptr<RuntimeState> state(new RuntimeState(config));
  RETURN_IF_ERROR(state->ConnectHost(environment));
  ASSIGN_OR_RETURN(state->world_, MakeWorld(state->node_, state->membership_->size()));
  return state;
}

absl::Status RuntimeState::ConnectHost(const Environment& environment) {
  const TimePoint deadline = DeadlineAfter(std::chrono::steady_clock::now(), config_.start_timeout);
  ASSIGN_OR_RETURN(membership_, Membership::Join(config_, environment, deadline));
  const int rank = membership_->rank(), size = membership_->size();
  logger_ = MakeLogger(config_.log_level, absl::StrCat("rank ", rank));
  ASSIGN_OR_RETURN(shm::OwnMemory own,
                   shm::OwnMemory::Create(rank, config_.arena_bytes > 0 ? config_.arena_bytes : MachineMemory()));

  std::vector<shm::Link> links;
  bool crowded = false;
  if (size > 1) {
    const HandshakeIdentity self{.job_id = membership_->job_id(), .epoch = membership_->epoch(), .rank = rank,
                                 .role = Role::kRank};
    std::string directory;  // ranks told to share a host may be in different network namespaces: meet by files
    if (config_.host_id) {
      ASSIGN_OR_RETURN(directory, UserDirectory(environment));
    }
    ASSIGN_OR_RETURN(auto mesh, shm::Mesh::Listen(self, membership_->secret(), directory));
    ASSIGN_OR_RETURN(std::vector<RankPlace> places, ExchangePlaces(*membership_, config_, mesh->address(), deadline));
    RETURN_IF_ERROR(CheckOneHost(places));
    crowded = IsCrowded(places);
    ASSIGN_OR_RETURN(links, mesh->Connect(PeerAddresses(places, rank), own, deadline));
  }
  const shm::NodeOptions options{.rank = rank,
                                 .heartbeat_interval = config_.heartbeat_interval,
                                 .heartbeat_timeout = config_.heartbeat_timeout};
  ASSIGN_OR_RETURN(node_, shm::Node::Create(options, std::move(own), std::move(links), logger_));
  const bool spin = config_.spin.value_or(!crowded);
  progress_ = std::make_shared<Progress>(node_, spin ? shm::WaitPolicy::Spinning() : shm::WaitPolicy::Crowded());
  logger_->debug("rank {} of {} joined by {}; {}", rank, size, membership_->launcher(),
                 spin ? "waits spin" : "waits yield");
  return absl::OkStatus();
}

RuntimeState::~RuntimeState() { Shutdown(); }

void RuntimeState::Shutdown() {
  if (node_ == nullptr || progress_ == nullptr) return;  // Join failed half-way
  node_->Close();
  progress_->Stop();
  std::lock_guard lock(mutex_);
  membership_.reset();  // its store, where this rank serves it: all who had to meet there have met
}

}  // namespace gyre::internal
