#include "transport/shm/node.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace gyre::shm {

Node::Node(const NodeOptions& options, OwnMemory own, std::vector<Link> links, Logger logger)
    : options_(options), own_(std::move(own)), logger_(std::move(logger)), links_(std::move(links)) {
  const Segment& arena = own_.arena->segment();
  members_[options_.rank] = {own_.control.data(), arena.data(), arena.size()};
  for (const Link& link : links_) {
    members_[link.rank] = {link.control.data(), link.arena.data(), link.arena.size()};
  }
}

absl::StatusOr<std::shared_ptr<Node>> Node::Create(const NodeOptions& options, OwnMemory own, std::vector<Link> links,
                                                   Logger logger) {
  std::shared_ptr<Node> node(new Node(options, std::move(own), std::move(links), std::move(logger)));
  if (node->links_.empty()) return node;  // alone: nobody to watch
  std::vector<Monitor::Peer> peers;
  for (const Link& link : node->links_) {
    peers.push_back(
        {link.socket.get(), link.process.get(), reinterpret_cast<const ControlBlock*>(link.control.data())});
  }
  ASSIGN_OR_RETURN(
      node->monitor_,
      Monitor::Start(std::move(peers), node->block(options.rank), options.heartbeat_interval, options.heartbeat_timeout,
                     {.on_gone = [n = node.get()](int link, PeerFate fate) { n->OnGone(link, fate); },
                      .on_beat = [n = node.get()] { n->OnBeat(); }}));
  return node;
}

Node::~Node() {
  Close();
}

absl::StatusOr<int64_t> Node::ReserveRegion(int64_t bytes) {
  constexpr int64_t kPage = 4096;
  bytes = (bytes + kPage - 1) / kPage * kPage;
  std::lock_guard lock(mutex_);
  if (bytes > own_.control.size() - next_region_) {
    return absl::ResourceExhaustedError("too many communicators: this rank's control segment is used up");
  }
  return std::exchange(next_region_, next_region_ + bytes);
}

std::string Node::NameOf(int rank) const {
  const auto number = static_cast<size_t>(rank);  // garbage is no rank
  return number < options_.names.size() ? options_.names[number] : absl::StrCat("rank ", rank);
}

std::optional<Node::Loss> Node::LossOf(int rank) const {
  std::lock_guard lock(mutex_);
  for (const Loss& loss : lost_) {
    if (loss.rank == rank) return loss;
  }
  return std::nullopt;
}

std::optional<Node::Loss> Node::FirstLoss() const {
  std::lock_guard lock(mutex_);
  for (const Loss& loss : lost_) {
    if (!loss.left()) return loss;
  }
  return std::nullopt;
}

void Node::OnGone(int link, PeerFate fate) {
  const int rank = links_[static_cast<size_t>(link)].rank;
  // A peer that went because it had lost another tells so; what it lost comes first in our order too.
  AdoptLosses(rank);
  const double timeout = std::chrono::duration<double>(options_.heartbeat_timeout).count();
  std::string text;
  switch (fate) {
    case PeerFate::kLeft: text = DepartureOf(rank).text; break;
    case PeerFate::kDied: text = absl::StrCat(NameOf(rank), " was lost: its process ended"); break;
    case PeerFate::kStopped:
      text = absl::StrFormat("%s was lost: no heartbeat for %.1f s, its process is stopped", NameOf(rank), timeout);
      break;
    case PeerFate::kSilent: text = absl::StrFormat("%s was lost: no heartbeat for over %.1f s", NameOf(rank), timeout);
  }
  Record({rank, fate == PeerFate::kLeft ? Loss::End::kLeft : Loss::End::kLost, std::move(text)});
  block(options_.rank).doorbell.Ring();
}

void Node::OnBeat() {
  const int before = losses();
  for (const Link& link : links_) AdoptLosses(link.rank);
  if (losses() != before) block(options_.rank).doorbell.Ring();
  if (options_.on_beat) options_.on_beat();
}

Node::Loss Node::DepartureOf(int rank) {
  AdoptLosses(rank);
  return {rank, Loss::End::kLeft, absl::StrCat(NameOf(rank), " left the job (its runtime was shut down)")};
}

// Takes over what a neighbour has learned since the last time. Two threads may do it at once: the later to come finds
// all of it recorded, at the price of doing it twice.
void Node::AdoptLosses(int rank) {
  // A rank that was lost and goes on knows nothing any more: to it, it is the others who are gone.
  if (const auto loss = LossOf(rank); loss && loss->end == Loss::End::kLost) return;
  const ControlBlock& neighbour = block(rank);
  const int known = neighbour.losses.size();
  int next = 0;
  {
    std::lock_guard lock(mutex_);
    next = adopted_[rank];
  }
  for (; next < known; ++next) {
    const int lost = neighbour.losses.rank(next);
    const auto verdict = next == 0 ? neighbour.verdict.Read() : std::nullopt;
    const std::string text =
        verdict ? verdict->text : absl::StrCat(NameOf(lost), " was lost, as rank ", rank, " found");
    if (lost == options_.rank) {
      LearnGivenUpBy(rank, absl::StrCat(NameOf(rank), " has given ", NameOf(lost), " up: ", text));
    } else {
      LearnLoss(lost, text);
    }
  }
  std::lock_guard lock(mutex_);
  adopted_[rank] = std::max(adopted_[rank], known);
}

void Node::LearnLoss(int rank, const std::string& text) {
  // It may come from another process's memory: garbage is no rank.
  if (rank != options_.rank && rank >= 0 && rank < options_.job_size) Record({rank, Loss::End::kLost, text});
}

void Node::LearnGivenUpBy(int rank, const std::string& text) {
  Record({rank, Loss::End::kGaveUp, text});
}

void Node::LearnDeparture(int rank) {
  Record({rank, Loss::End::kLeft, absl::StrCat(NameOf(rank), " left the job (its runtime was shut down)")});
}

void Node::Record(const Loss& loss) {
  if (!Remember(loss) || loss.left()) return;
  logger_.Info(loss.text);
  if (loss.end == Loss::End::kLost && options_.on_loss) options_.on_loss(loss.rank, loss.text);
}

// False: its end was known before.
bool Node::Remember(const Loss& loss) {
  std::lock_guard lock(mutex_);
  for (const Loss& known : lost_) {
    if (known.rank == loss.rank) return false;
  }
  if (loss.end == Loss::End::kLost) {
    ControlBlock& own = block(options_.rank);
    own.verdict.Write({loss.rank, loss.text});
    own.losses.Append(loss.rank);
  }
  lost_.push_back(loss);
  loss_count_.store(static_cast<int>(lost_.size()), std::memory_order_seq_cst);
  return true;
}

void Node::Close() {
  std::lock_guard lock(close_mutex_);
  if (closed_.exchange(true)) return;
  ControlBlock& own = block(options_.rank);
  own.left.store(1, std::memory_order_seq_cst);  // before the sockets end
  own.doorbell.Ring();
  monitor_.reset();
  for (Link& link : links_) {
    shutdown(link.socket.get(), SHUT_RDWR);  // a child of this process may have the socket too
    link.socket.Reset();
  }
}

}  // namespace gyre::shm
