#include "transport/tcp/hub_loop.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/socket.h"

namespace gyre::tcp {

namespace {

constexpr int kMaxPending = 256;           // strangers under authentication
constexpr size_t kMaxAnnouncements = 128;  // kept for peers that come later
constexpr Duration kRetryPause = std::chrono::milliseconds(100);
constexpr Duration kCloseTimeout = std::chrono::milliseconds(500);
// What of a stream lies in the kernel and has not been sent: enough to keep the wire busy, and little enough that what
// is more urgent need not wait behind it.
constexpr int kNotSentLowWater = 256 * 1024;

std::string SecondsText(Duration duration) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count() / 100;
  return absl::StrCat(tenths / 10, ".", tenths % 10, " s");
}

}  // namespace

absl::StatusOr<std::unique_ptr<HubLoop>> HubLoop::Create(HandshakeIdentity self, std::string secret, HubOptions options,
                                                         HubEvents events, Logger logger, Switchboard& board) {
  ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Create());
  return std::unique_ptr<HubLoop>(new HubLoop(std::move(self), std::move(secret), options, std::move(events),
                                              std::move(logger), board, std::move(loop)));
}

HubLoop::HubLoop(HandshakeIdentity self, std::string secret, HubOptions options, HubEvents events, Logger logger,
                 Switchboard& board, std::unique_ptr<EventLoop> loop)
    : self_(std::move(self)),
      secret_(std::move(secret)),
      options_(options),
      events_(std::move(events)),
      logger_(std::move(logger)),
      board_(board),
      loop_(std::move(loop)) {}

absl::Status HubLoop::Start(UniqueFd listener, const std::map<int, PeerAddress>& peers) {
  for (const auto& [rank, address] : peers) peers_[rank].address = address;
  ASSIGN_OR_RETURN(listener_, AuthenticatingListener::Create(
                                  *loop_, std::move(listener), self_, secret_, {.max_pending = kMaxPending},
                                  [this](AcceptedPeer accepted) { Accepted(std::move(accepted)); }));
  if (options_.heartbeat_interval > Duration::zero()) {
    last_tick_ = std::chrono::steady_clock::now();
    loop_->AddTimer(last_tick_ + options_.heartbeat_interval, [this] { Tick(); });
  }
  return absl::OkStatus();
}

void HubLoop::Post(std::function<void()> command) {
  const std::lock_guard lock(commands_mutex_);
  commands_.push_back(std::move(command));
  loop_->Wake();
}

void HubLoop::RunCommands() {
  std::vector<std::function<void()>> commands;
  {
    const std::lock_guard lock(commands_mutex_);
    commands.swap(commands_);
  }
  for (const auto& command : commands) command();
}

void HubLoop::Run() {
  while (!done_) {
    if (const absl::Status ran = loop_->RunOnce(TimePoint::max()); !ran.ok()) {
      for (const auto& [rank, peer] : peers_) Lose(rank, absl::StrCat("this rank cannot watch it: ", ran.message()));
      done_ = true;
    }
    RunCommands();
    stopped_.clear();
    if (listener_ != nullptr) board_.SetCounts(listener_->counts());
  }
  arrivals_.clear();
  for (auto& [rank, peer] : peers_) DropConnections(peer);
  stopped_.clear();
  listener_.reset();
}

bool HubLoop::IsHere(int rank) const {
  return !closing_ && board_.FateOf(rank) == Fate::kHere;
}

void HubLoop::Changed() {
  if (!closing_ && events_.on_change != nullptr) events_.on_change();
}

// --- Connections that this rank makes ---

void HubLoop::WantControl(int rank) {
  Peer& peer = peers_.at(rank);
  if (!IsHere(rank) || rank < self_.rank || peer.link != nullptr || peer.connector != nullptr) return;
  peer.connector = Connect(rank, {.control = true});
}

void HubLoop::WantData(int rank, uint64_t channel) {
  WantControl(rank);
  Peer& peer = peers_.at(rank);
  if (!IsHere(rank) || rank < self_.rank || peer.data_connectors.contains(channel)) return;
  peer.data_connectors[channel] = Connect(rank, {.channel = channel});
}

void HubLoop::ForgetChannel(uint64_t channel) {
  for (auto& [rank, peer] : peers_) peer.data_connectors.erase(channel);
  board_.Forget(channel);
}

std::unique_ptr<Connector> HubLoop::Connect(int rank, const Purpose& purpose) {
  const PeerAddress& address = peers_.at(rank).address;
  const ConnectorOptions options{
      .what = ToString(address.endpoint), .endpoint = address.endpoint, .attempt_timeout = options_.connect_timeout};
  return std::make_unique<Connector>(
      *loop_, options, self_, secret_,
      [this, rank, purpose](absl::StatusOr<gyre::Connected> result) { Connected(rank, purpose, std::move(result)); },
      [this, rank](const absl::Status& why) { board_.SetProblem(rank, why); });
}

void HubLoop::Connected(int rank, const Purpose& purpose, absl::StatusOr<gyre::Connected> result) {
  if (!result.ok()) return Lose(rank, result.status().message());
  Peer& peer = peers_.at(rank);
  if (purpose.control) {
    peer.connector.reset();
  } else {
    peer.data_connectors.erase(purpose.channel);
  }
  if (const absl::Status told = TellPurpose(rank, *result, purpose); !told.ok()) return Retry(rank, purpose, told);
  if (purpose.control) return Attach(rank, std::move(result->fd), /*connector=*/true);
  DeliverData(rank, purpose.channel, std::move(result->fd));
}

absl::Status HubLoop::TellPurpose(int rank, const gyre::Connected& connected, const Purpose& purpose) const {
  if (connected.peer.role != Role::kRank || connected.peer.rank != rank) {
    return absl::FailedPreconditionError(absl::StrCat("in its place answered ", Describe(connected.peer)));
  }
  // A new connection has room for it.
  return SendAll(connected.fd.get(), AsBytes(EncodePurpose(self_.epoch, purpose)), TimePoint{});
}

// The connection broke before the peer can have counted on it.
void HubLoop::Retry(int rank, const Purpose& purpose, const absl::Status& why) {
  if (absl::IsFailedPrecondition(why)) return Lose(rank, why.message());
  board_.SetProblem(rank, why);
  if (!purpose.control) return WantData(rank, purpose.channel);
  loop_->AddTimer(std::chrono::steady_clock::now() + kRetryPause, [this, rank] { WantControl(rank); });
}

void HubLoop::DeliverData(int rank, uint64_t channel, UniqueFd fd) {
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kNotSentLowWater, sizeof(kNotSentLowWater));
  if (board_.Deliver(channel, rank, std::move(fd))) {
    logger_.Warn("too many connections wait for their channels to be opened: the oldest was closed");
  }
  Changed();
}

// --- Control connections ---

void HubLoop::Attach(int rank, UniqueFd fd, bool connector) {
  auto link = ControlLink::Create(
      *loop_, std::move(fd), connector, self_.epoch, [this, rank](const Frame& frame) { Received(rank, frame); },
      [this, rank](const absl::Status& why) { LinkEnded(rank, why); });
  if (!link.ok()) return Lose(rank, link.status().message());
  Peer& peer = peers_.at(rank);
  peer.link = *std::move(link);
  peer.silent = {};
  // The side that connected takes it for connected when it hears this.
  peer.link->SendHeartbeat();
  TellWhatWas(*peer.link);
  if (!connector) MarkUp(rank);
}

void HubLoop::TellWhatWas(ControlLink& link) const {
  for (const auto& [lost, text] : board_.Lost()) {
    if (!gave_up_.contains(lost)) link.Send(FrameType::kLoss, Encode(Loss{lost, self_.rank, text}));
  }
  for (const auto& [lost, text] : lost_neighbours_) {
    link.Send(FrameType::kLoss, Encode(Loss{lost, self_.rank, text}));
  }
  for (const std::string& announcement : announcements_) link.Send(FrameType::kAnnouncement, announcement);
}

void HubLoop::MarkUp(int rank) {
  peers_.at(rank).up = true;
  board_.SetUp(rank);
  Changed();
}

void HubLoop::Received(int rank, const Frame& frame) {
  if (closing_ && frame.header.type != static_cast<uint16_t>(FrameType::kGoodbye)) return;
  if (!closing_ && !peers_.at(rank).up) MarkUp(rank);
  if (const absl::Status read = Interpret(rank, frame); !read.ok()) Lose(rank, read.message());
}

absl::Status HubLoop::Interpret(int rank, const Frame& frame) {
  switch (static_cast<FrameType>(frame.header.type)) {
    case FrameType::kHeartbeat: return absl::OkStatus();
    case FrameType::kGoodbye: Leave(rank); return absl::OkStatus();
    case FrameType::kAnnouncement: {
      ASSIGN_OR_RETURN(const Announcement announcement, DecodeAnnouncement(frame.payload));
      if (events_.on_announcement != nullptr) events_.on_announcement(rank, announcement);
      return absl::OkStatus();
    }
    case FrameType::kCall: {
      ASSIGN_OR_RETURN(const CallNotice notice, DecodeCallNotice(frame.payload));
      if (events_.on_call != nullptr) events_.on_call(rank, notice);
      return absl::OkStatus();
    }
    case FrameType::kLoss: {
      ASSIGN_OR_RETURN(const Loss loss, DecodeLoss(frame.payload));
      Heard(rank, loss);
      return absl::OkStatus();
    }
    case FrameType::kPurpose: break;
  }
  return absl::DataLossError(absl::StrCat("malformed frame: type ", frame.header.type));
}

void HubLoop::Heard(int teller, const Loss& loss) {
  if (loss.rank == self_.rank) return GaveUp(teller, loss.text);
  // A rank of this host is its own neighbours' to judge.
  if (peers_.contains(loss.rank)) EndLost(loss.rank, loss.reporter, loss.text);
}

// Of a rank that was frozen for too long this is so. Should the teller lie, no more than it is lost.
void HubLoop::GaveUp(int teller, const std::string& why) {
  const std::string text = absl::StrCat(peers_.at(teller).address.name, " has given rank ", self_.rank, " up: ", why);
  if (closing_ || !board_.End(teller, Fate::kLost, text)) return;
  logger_.Info(text);
  gave_up_.insert(teller);
  DropConnections(peers_.at(teller));
  if (events_.on_gave_up != nullptr) events_.on_gave_up(teller, text);
  Changed();
}

void HubLoop::LinkEnded(int rank, const absl::Status& why) {
  Peer& peer = peers_.at(rank);
  stopped_.push_back(std::move(peer.link));
  if (closing_) return FinishIfAlone();
  if (!peer.up && absl::IsUnavailable(why)) return Retry(rank, {.control = true}, why);
  Lose(rank, why.message());
}

void HubLoop::Tick() {
  if (closing_) return;
  const TimePoint now = std::chrono::steady_clock::now();
  // A tick that comes late counts for two intervals at most: a rank that was itself stopped, or starved, does not blame
  // the others for the time it missed.
  const Duration elapsed = std::min(now - last_tick_, 2 * options_.heartbeat_interval);
  last_tick_ = now;
  for (auto& [rank, peer] : peers_) {
    if (peer.link == nullptr) continue;
    peer.silent = peer.link->TakeHeard() ? Duration::zero() : peer.silent + elapsed;
    if (options_.heartbeat_timeout > Duration::zero() && peer.silent >= options_.heartbeat_timeout) {
      Lose(rank, absl::StrCat("no heartbeat for ", SecondsText(options_.heartbeat_timeout)));
    } else {
      peer.link->SendHeartbeat();
    }
  }
  ReportStrangers();
  loop_->AddTimer(now + options_.heartbeat_interval, [this] { Tick(); });
}

void HubLoop::Announce(const Announcement& announcement) {
  announcements_.push_back(Encode(announcement));
  ToAll(FrameType::kAnnouncement, announcements_.back());
  if (announcements_.size() > kMaxAnnouncements) announcements_.pop_front();
}

void HubLoop::ReportLoss(int rank, const std::string& text) {
  if (peers_.contains(rank)) return EndLost(rank, self_.rank, text);
  if (lost_neighbours_.try_emplace(rank, text).second) ToAll(FrameType::kLoss, Encode(Loss{rank, self_.rank, text}));
}

void HubLoop::ToAll(FrameType type, const std::string& payload) {
  for (auto& [rank, peer] : peers_) {
    if (peer.link != nullptr) peer.link->Send(type, payload);
  }
}

// --- Ends ---

void HubLoop::Lose(int rank, absl::string_view why) {
  EndLost(rank, self_.rank, absl::StrCat(peers_.at(rank).address.name, " was lost: ", why));
}

void HubLoop::EndLost(int rank, int reporter, const std::string& text) {
  if (closing_ || !board_.End(rank, Fate::kLost, text)) return;
  logger_.Info(text);
  // Also the lost one: should it still be there, it learns why nobody talks to it.
  ToAll(FrameType::kLoss, Encode(Loss{rank, reporter, text}));
  DropConnections(peers_.at(rank));
  if (events_.on_lost != nullptr) events_.on_lost(rank, text);
  Changed();
}

void HubLoop::Leave(int rank) {
  Peer& peer = peers_.at(rank);
  DropConnections(peer);
  if (closing_) return FinishIfAlone();
  if (!board_.End(rank, Fate::kLeft, absl::StrCat(peer.address.name, " has left"))) return;
  if (events_.on_left != nullptr) events_.on_left(rank);
  Changed();
}

void HubLoop::DropConnections(Peer& peer) {
  peer.connector.reset();
  peer.data_connectors.clear();
  if (peer.link == nullptr) return;
  peer.link->Stop();
  stopped_.push_back(std::move(peer.link));
}

void HubLoop::Close() {
  closing_ = true;
  listener_.reset();
  arrivals_.clear();
  for (auto& [rank, peer] : peers_) {
    peer.connector.reset();
    peer.data_connectors.clear();
    if (peer.link == nullptr) continue;
    peer.link->Send(FrameType::kGoodbye);
    peer.link->FinishSending();
  }
  board_.Shutdown();
  loop_->AddTimer(std::chrono::steady_clock::now() + kCloseTimeout, [this] { done_ = true; });
  FinishIfAlone();
}

void HubLoop::FinishIfAlone() {
  done_ = done_ || std::ranges::all_of(peers_, [](const auto& entry) { return entry.second.link == nullptr; });
}

}  // namespace gyre::tcp
