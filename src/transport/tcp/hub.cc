#include "transport/tcp/hub.h"

#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/thread.h"
#include "net/socket.h"
#include "transport/tcp/channel_streams.h"
#include "transport/tcp/hub_loop.h"
#include "transport/tcp/switchboard.h"

namespace gyre::tcp {

namespace {

constexpr int kBacklog = 1024;

}  // namespace

class Hub::Core {
 public:
  static absl::StatusOr<std::unique_ptr<Core>> Create(HandshakeIdentity self, std::string secret, UniqueFd listener,
                                                      HubOptions options, HubEvents events, Logger logger) {
    auto core = std::make_unique<Core>(self.rank, std::move(listener));
    ASSIGN_OR_RETURN(core->loop_, HubLoop::Create(std::move(self), std::move(secret), options, std::move(events),
                                                  std::move(logger), core->board_));
    return core;
  }
  Core(int self, UniqueFd listener) : self_(self), listener_(std::move(listener)), board_(self) {}

  absl::Status Start(const std::map<int, PeerAddress>& peers);
  absl::Status Check(std::span<const int> ranks) const;
  void Close();
  Switchboard& board() { return board_; }
  HubLoop& loop() { return *loop_; }

 private:
  const int self_;
  UniqueFd listener_;
  Switchboard board_;
  std::unique_ptr<HubLoop> loop_;
  std::mutex mutex_;  // starting and closing
  std::thread thread_;
};

absl::Status Hub::Core::Start(const std::map<int, PeerAddress>& peers) {
  const std::lock_guard lock(mutex_);
  if (!listener_) return absl::FailedPreconditionError("the hub was started or closed before");
  for (const auto& [rank, address] : peers) {
    if (rank == self_ || !IsAddress(address.endpoint) || address.endpoint.port == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(address.name, " cannot be a peer at ", ToString(address.endpoint)));
    }
  }
  board_.SetPeers(peers);
  RETURN_IF_ERROR(loop_->Start(std::move(listener_), peers));
  ASSIGN_OR_RETURN(thread_, StartThread("the hub's thread", [loop = loop_.get()] { loop->Run(); }));
  return absl::OkStatus();
}

absl::Status Hub::Core::Check(std::span<const int> ranks) const {
  for (const int rank : ranks) {
    if (!board_.Knows(rank)) return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is not a peer"));
  }
  return absl::OkStatus();
}

void Hub::Core::Close() {
  const std::lock_guard lock(mutex_);
  board_.Close();
  listener_.Reset();
  if (!thread_.joinable()) return;
  loop_->Post([loop = loop_.get()] { loop->Close(); });
  thread_.join();
}

// --- Hub ---

absl::StatusOr<std::unique_ptr<Hub>> Hub::Listen(HandshakeIdentity self, std::string secret, const Endpoint& bind,
                                                 HubOptions options, HubEvents events, Logger logger,
                                                 TimePoint deadline) {
  ASSIGN_OR_RETURN(UniqueFd listener, ListenTcp(bind, kBacklog, deadline));
  ASSIGN_OR_RETURN(Endpoint endpoint, LocalEndpoint(listener.get()));
  ASSIGN_OR_RETURN(std::unique_ptr<Core> core, Core::Create(std::move(self), std::move(secret), std::move(listener),
                                                            options, std::move(events), std::move(logger)));
  return std::unique_ptr<Hub>(new Hub(std::move(core), std::move(endpoint)));
}

Hub::Hub(std::unique_ptr<Core> core, Endpoint endpoint) : core_(std::move(core)), endpoint_(std::move(endpoint)) {}

Hub::~Hub() {
  Close();
}

absl::Status Hub::Start(const std::map<int, PeerAddress>& peers) {
  return core_->Start(peers);
}

absl::Status Hub::Connect(std::span<const int> peers, TimePoint deadline) {
  RETURN_IF_ERROR(core_->Check(peers));
  Reach(peers);
  return core_->board().WaitUntilUp(peers, deadline);
}

void Hub::Reach(std::span<const int> peers) {
  core_->loop().Post([core = core_.get(), ranks = std::vector(peers.begin(), peers.end())] {
    for (const int rank : ranks) {
      if (core->board().Knows(rank)) core->loop().WantControl(rank);
    }
  });
}

std::unique_ptr<Streams> Hub::Open(uint64_t channel, const std::vector<int>& peers) {
  HubLoop* const loop = &core_->loop();
  return std::make_unique<ChannelStreams>(
      core_->board(), channel, peers,
      [loop, channel](int rank) { loop->Post([loop, channel, rank] { loop->WantData(rank, channel); }); },
      [loop, channel] { loop->Post([loop, channel] { loop->ForgetChannel(channel); }); });
}

void Hub::Announce(const Announcement& announcement) {
  core_->loop().Post([loop = &core_->loop(), announcement] { loop->Announce(announcement); });
}

void Hub::TellCall(const CallNotice& notice) {
  core_->loop().Post([loop = &core_->loop(), notice] { loop->TellCall(notice); });
}

void Hub::ReportLoss(int rank, const std::string& text) {
  core_->loop().Post([loop = &core_->loop(), rank, text] { loop->ReportLoss(rank, text); });
}

absl::Status Hub::EndOf(int peer) const {
  RETURN_IF_ERROR(core_->Check({&peer, 1}));
  return core_->board().EndOf(peer);
}

std::string Hub::WhyNotConnected(int peer) const {
  return core_->board().LastProblem(peer);
}

AcceptorCounts Hub::counts() const {
  return core_->board().counts();
}

void Hub::Close() {
  core_->Close();
}

}  // namespace gyre::tcp
