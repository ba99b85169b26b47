#include "transport/tcp/switchboard.h"

#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::tcp {

namespace {

constexpr size_t kMaxWaiting = 4096;

void ShutDownAll(const std::vector<std::weak_ptr<const UniqueFd>>& connections, int how) {
  for (const auto& connection : connections) {
    if (const DataConnection open = connection.lock()) shutdown(open->get(), how);
  }
}

}  // namespace

void Switchboard::SetPeers(const std::map<int, PeerAddress>& peers) {
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, address] : peers) peers_[rank].address = address;
}

const Switchboard::Peer* Switchboard::Find(int rank) const {
  const auto found = peers_.find(rank);
  return found == peers_.end() ? nullptr : &found->second;
}

bool Switchboard::Knows(int rank) const {
  const std::lock_guard lock(mutex_);
  return Find(rank) != nullptr;
}

std::string Switchboard::NameOf(int rank) const {
  const std::lock_guard lock(mutex_);
  const Peer* peer = Find(rank);
  return peer == nullptr ? absl::StrCat("rank ", rank) : peer->address.name;
}

// --- The hub's thread ---

void Switchboard::SetUp(int rank) {
  const std::lock_guard lock(mutex_);
  peers_.at(rank).up = true;
  changed_.notify_all();
}

void Switchboard::SetProblem(int rank, const absl::Status& why) {
  const std::lock_guard lock(mutex_);
  peers_.at(rank).problem = std::string(why.message());
}

void Switchboard::SetArriving(int rank, int count) {
  const std::lock_guard lock(mutex_);
  peers_.at(rank).arriving = count;
}

bool Switchboard::End(int rank, Fate fate, std::string text) {
  const std::lock_guard lock(mutex_);
  Peer& peer = peers_.at(rank);
  if (peer.fate != Fate::kHere) return false;
  peer.fate = fate;
  peer.text = std::move(text);
  peer.up = false;
  // Whoever waits in poll(2) wakes, and finds the end after all that came before it. Who has left still has bytes on
  // their way to us, but reads none.
  ShutDownAll(peer.taken, fate == Fate::kLost ? SHUT_RDWR : SHUT_WR);
  if (fate == Fate::kLost) std::erase_if(waiting_, [rank](const auto& entry) { return entry.first.second == rank; });
  changed_.notify_all();
  return true;
}

Fate Switchboard::FateOf(int rank) const {
  const std::lock_guard lock(mutex_);
  return peers_.at(rank).fate;
}

std::vector<std::pair<int, std::string>> Switchboard::Lost() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<int, std::string>> lost;
  for (const auto& [rank, peer] : peers_) {
    if (peer.fate == Fate::kLost) lost.emplace_back(rank, peer.text);
  }
  return lost;
}

bool Switchboard::Deliver(uint64_t channel, int rank, UniqueFd connection) {
  const std::lock_guard lock(mutex_);
  if (closed_ || peers_.at(rank).fate == Fate::kLost) return false;
  waiting_[{channel, rank}] = {next_order_++, std::make_shared<const UniqueFd>(std::move(connection))};
  if (waiting_.size() <= kMaxWaiting) return false;
  waiting_.erase(std::ranges::min_element(waiting_, {}, [](const auto& entry) { return entry.second.order; }));
  return true;
}

void Switchboard::Forget(uint64_t channel) {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [channel](const auto& entry) { return entry.first.first == channel; });
}

void Switchboard::SetCounts(const AcceptorCounts& counts) {
  const std::lock_guard lock(mutex_);
  counts_ = counts;
}

AcceptorCounts Switchboard::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

// --- Users' threads ---

DataConnection Switchboard::Take(uint64_t channel, int rank) {
  const std::lock_guard lock(mutex_);
  if (closed_) return nullptr;
  auto found = waiting_.extract({channel, rank});
  if (found.empty()) return nullptr;
  Peer& peer = peers_.at(rank);
  std::erase_if(peer.taken, [](const auto& entry) { return entry.expired(); });
  peer.taken.push_back(found.mapped().connection);
  if (peer.fate == Fate::kLeft) shutdown(found.mapped().connection->get(), SHUT_WR);  // as End would have
  return std::move(found.mapped().connection);
}

// OK while all is well.
absl::Status Switchboard::EndOf(const Peer& peer) const {
  if (closed_) return absl::FailedPreconditionError("this rank has closed its connections to other hosts");
  if (peer.fate == Fate::kHere) return absl::OkStatus();
  return absl::UnavailableError(peer.text);
}

absl::Status Switchboard::WhyNoConnection(int rank) const {
  const std::lock_guard lock(mutex_);
  const Peer* peer = Find(rank);
  if (peer == nullptr) return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is not on another host"));
  // Who has left may have sent all that we wait for, over a connection that is just arriving.
  if (!closed_ && peer->fate == Fate::kLeft && peer->arriving > 0) return absl::OkStatus();
  return EndOf(*peer);
}

absl::Status Switchboard::EndOf(int rank) const {
  const std::lock_guard lock(mutex_);
  return EndOf(peers_.at(rank));
}

std::string Switchboard::LastProblem(int rank) const {
  const std::lock_guard lock(mutex_);
  const Peer* peer = Find(rank);
  return peer == nullptr ? "" : Describe(*peer, rank);
}

std::string Switchboard::Describe(const Peer& peer, int rank) const {
  if (peer.fate != Fate::kHere) return peer.text;
  if (peer.up) return "";
  const std::string_view silent = rank < self_ ? "it has not connected" : "it has not answered";
  return absl::StrCat(peer.address.name, " at ", ToString(peer.address.endpoint), ": ",
                      peer.problem.empty() ? ToAbsl(silent) : absl::string_view(peer.problem));
}

absl::Status Switchboard::WaitUntilUp(std::span<const int> ranks, TimePoint deadline) const {
  std::unique_lock lock(mutex_);
  for (;;) {
    size_t up = 0;
    for (const int rank : ranks) {
      const Peer& peer = peers_.at(rank);
      const bool was_up = peer.fate == Fate::kLeft && !closed_;  // it came, and left in order
      if (!was_up) RETURN_IF_ERROR(EndOf(peer));
      up += peer.up || was_up ? 1 : 0;
    }
    if (up == ranks.size()) return absl::OkStatus();
    if (std::chrono::steady_clock::now() >= deadline) return absl::DeadlineExceededError(Missing(ranks));
    changed_.wait_until(lock, deadline);
  }
}

std::string Switchboard::Missing(std::span<const int> ranks) const {
  constexpr int kMaxNamed = 8;
  std::string text = "not reached in time: ";
  int missing = 0;
  for (const int rank : ranks) {
    const Peer& peer = peers_.at(rank);
    if (peer.up || ++missing > kMaxNamed) continue;
    absl::StrAppend(&text, missing > 1 ? "; " : "", Describe(peer, rank));
  }
  if (missing > kMaxNamed) absl::StrAppend(&text, "; and ", missing - kMaxNamed, " more");
  return text;
}

// --- The end ---

void Switchboard::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  waiting_.clear();
  changed_.notify_all();
}

void Switchboard::Shutdown() {
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, peer] : peers_) ShutDownAll(peer.taken, SHUT_RDWR);
}

}  // namespace gyre::tcp
