#include "bootstrap/store_server.h"

#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/thread.h"
#include "bootstrap/store_state.h"
#include "net/acceptor.h"
#include "net/event_loop.h"
#include "net/framing.h"
#include "net/socket.h"

namespace gyre {

namespace {

constexpr int kBacklog = 512;
constexpr AcceptorOptions kAcceptorOptions{.max_pending = 256, .handshake_timeout = std::chrono::seconds(5)};
constexpr size_t kServerReadBytes = 64 << 10;
constexpr size_t kMaxUnsent = 1 << 20;  // a client that does not read is read no more until it does
constexpr auto kLinger = std::chrono::seconds(2);

}  // namespace

// All but `stop_` and the loop's Wake belongs to the thread.
class StoreServer::Service {
 public:
  Service(std::unique_ptr<EventLoop> loop, Endpoint endpoint, const StoreServerOptions& options)
      : loop_(std::move(loop)),
        endpoint_(std::move(endpoint)),
        epoch_(options.epoch),
        state_(options.size, epoch_, options.ranks_return) {}

  ~Service() {
    stop_ = true;
    loop_->Wake();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start(UniqueFd listener, const StoreServerOptions& options) {
    HandshakeIdentity self{options.job_id, options.epoch, /*rank=*/-1, Role::kStore};
    ASSIGN_OR_RETURN(listener_, AuthenticatingListener::Create(*loop_, std::move(listener), std::move(self),
                                                               options.secret, kAcceptorOptions,
                                                               [this](AcceptedPeer peer) { Admit(std::move(peer)); }));
    ASSIGN_OR_RETURN(thread_, StartThread("serve the store", [this] { Run(); }));
    return absl::OkStatus();
  }

  const Endpoint& endpoint() const { return endpoint_; }

 private:
  using Id = StoreState::ConnectionId;

  struct Connection {
    UniqueFd fd;
    FrameDecoder decoder{kMaxStoreRequestBytes};
    std::string unsent;
    size_t sent = 0;  // of `unsent`
    uint32_t events = EPOLLIN;
  };

  void Run() {
    while (!stop_) {
      // epoll_wait on our own descriptors does not fail; if it does, the clients see the connections end.
      if (!loop_->RunOnce(state_.NextExpiry()).ok()) break;
      TellOfRefusals();
      state_.Expire(std::chrono::steady_clock::now());
      SendReplies();
    }
    Drain();
  }

  void TellOfRefusals() {
    const AcceptorCounts& counts = listener_->counts();
    const int64_t before = std::exchange(refusals_told_, counts.refused_peers);
    if (refusals_told_ > before) state_.Refused(refusals_told_ - before, counts.last_refused_peer);
  }

  void Admit(AcceptedPeer peer) {
    if (!SetNonBlocking(peer.fd.get(), true).ok()) return;
    const Id id = next_id_++;
    const int fd = peer.fd.get();
    if (!loop_->Add(fd, EPOLLIN, [this, id](uint32_t events) { OnEvent(id, events); }).ok()) return;
    connections_.try_emplace(id).first->second.fd = std::move(peer.fd);
    state_.Connected(id, peer.peer);
  }

  void OnEvent(Id id, uint32_t events) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0 && !Read(id, connection)) return Close(id);
    SendReplies();
    if ((events & EPOLLOUT) != 0) Write(id);
  }

  // One read an event, so that none is served at the others' cost. Returns false when the connection is over.
  bool Read(Id id, Connection& connection) {
    const ssize_t received = recv(connection.fd.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (received == 0) return false;
    if (received < 0) return errno == EAGAIN || errno == EINTR;
    Bytes bytes = AsBytes(buffer_).first(static_cast<size_t>(received));
    for (;;) {
      auto frame = connection.decoder.Next(bytes);
      if (!frame.ok()) return false;
      if (!frame->has_value()) return true;
      state_.Handle(id, **frame, std::chrono::steady_clock::now());
    }
  }

  void SendReplies() {
    // Closing a connection makes new replies: to those who waited for it.
    for (auto replies = state_.TakeReplies(); !replies.empty(); replies = state_.TakeReplies()) {
      for (StoreState::Reply& reply : replies) {
        const auto found = connections_.find(reply.to);
        if (found == connections_.end()) continue;
        const FrameHeader header{static_cast<uint16_t>(StoreMessage::kReply), static_cast<uint16_t>(reply.code), epoch_,
                                 reply.sequence};
        found->second.unsent += EncodeFrame(header, reply.payload);
        Write(reply.to);
      }
    }
  }

  void Write(Id id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    while (connection.sent < connection.unsent.size()) {
      const ssize_t sent = send(connection.fd.get(), connection.unsent.data() + connection.sent,
                                connection.unsent.size() - connection.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) {
        connection.sent += static_cast<size_t>(sent);
      } else if (errno == EAGAIN) {
        break;
      } else if (errno != EINTR) {
        return Close(id);
      }
    }
    if (connection.sent == connection.unsent.size()) {
      connection.unsent = {};
      connection.sent = 0;
    }
    UpdateEvents(id, connection);
  }

  void UpdateEvents(Id id, Connection& connection) {
    const size_t unsent = connection.unsent.size() - connection.sent;
    const uint32_t events = (unsent > 0 ? EPOLLOUT : 0u) | (unsent <= kMaxUnsent && !stop_ ? EPOLLIN : 0u);
    if (events == connection.events) return;
    connection.events = events;
    if (!loop_->Modify(connection.fd.get(), events).ok()) Close(id);
  }

  void Close(Id id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    loop_->Remove(found->second.fd.get());
    connections_.erase(found);
    state_.Disconnected(id);
  }

  // Sends what is owed, then lets go. Reads no more: `stop_` is set.
  void Drain() {
    listener_.reset();
    state_.Close();
    SendReplies();
    const TimePoint deadline = std::chrono::steady_clock::now() + kLinger;
    for (auto entry = connections_.begin(); entry != connections_.end();) {
      const auto& [id, connection] = *entry++;
      if (connection.unsent.empty()) Close(id);
    }
    while (!connections_.empty() && std::chrono::steady_clock::now() < deadline) {
      if (!loop_->RunOnce(deadline).ok()) break;
      for (auto entry = connections_.begin(); entry != connections_.end();) {
        const auto& [id, connection] = *entry++;
        if (connection.unsent.empty()) Close(id);
      }
    }
    while (!connections_.empty()) Close(connections_.begin()->first);
  }

  const std::unique_ptr<EventLoop> loop_;
  const Endpoint endpoint_;
  const uint64_t epoch_;
  StoreState state_;
  std::unique_ptr<AuthenticatingListener> listener_;
  std::map<Id, Connection> connections_;
  Id next_id_ = 1;
  int64_t refusals_told_ = 0;
  std::string buffer_ = std::string(kServerReadBytes, '\0');
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Start(const Endpoint& listen,
                                                                const StoreServerOptions& options, TimePoint deadline) {
  if (options.size < 1) return absl::InvalidArgumentError(absl::StrCat("a job of ", options.size, " ranks"));
  ASSIGN_OR_RETURN(UniqueFd listener, ListenTcp(listen, kBacklog, deadline));
  ASSIGN_OR_RETURN(Endpoint endpoint, LocalEndpoint(listener.get()));
  ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Create());
  auto service = std::make_unique<Service>(std::move(loop), std::move(endpoint), options);
  RETURN_IF_ERROR(service->Start(std::move(listener), options));
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(service)));
}

StoreServer::StoreServer(std::unique_ptr<Service> service) : service_(std::move(service)) {}
StoreServer::~StoreServer() = default;

const Endpoint& StoreServer::endpoint() const {
  return service_->endpoint();
}

}  // namespace gyre
