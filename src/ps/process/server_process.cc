#include "ps/process/server_process.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ps/process/setup.h"

namespace gyre::ps {

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Create(ServerProcessOptions options) {
  ASSIGN_OR_RETURN(auto loop, EventLoop::Create());
  UniqueFd listener = std::move(options.listener);
  std::unique_ptr<ServerProcess> process(new ServerProcess(std::move(options), std::move(loop)));
  const HandshakeIdentity self{process->options_.job_id, process->options_.epoch, process->options_.server,
                               Role::kServer};
  ASSIGN_OR_RETURN(process->listener_,
                   AuthenticatingListener::Create(
                       *process->loop_, std::move(listener), self, process->options_.secret, {},
                       [process = process.get()](AcceptedPeer peer) { process->Admit(std::move(peer)); }));
  if (const int stop = process->options_.stop.get(); stop >= 0) {
    RETURN_IF_ERROR(process->loop_->Add(stop, EPOLLIN, [process = process.get()](uint32_t) { process->stop_ = true; }));
  }
  return process;
}

ServerProcess::ServerProcess(ServerProcessOptions options, std::unique_ptr<EventLoop> loop)
    : options_(std::move(options)), loop_(std::move(loop)), disk_(options_.folder) {}

ServerProcess::~ServerProcess() = default;

void ServerProcess::Stop() {
  stop_ = true;
  loop_->Wake();
}

absl::Status ServerProcess::Run() {
  while (!stop_) {
    RETURN_IF_ERROR(loop_->RunOnce(server_ == nullptr ? TimePoint::max() : server_->NextTick()));
    AfterEvents();
    RETURN_IF_ERROR(status_);
  }
  return absl::OkStatus();
}

void ServerProcess::AfterEvents() {
  const TimePoint now = clock_.Now();
  if (server_ != nullptr && now >= server_->NextTick()) {
    for (const Connection& connection : connections_) {
      if (connection.link->IsStarved(now, Timing{}.timeout)) Hear(connection);
    }
    server_->Tick();
  }
  if (server_ != nullptr) LookAtDisk();
  if (next_ != nullptr) next_->Flush();
  if (next_ != nullptr && !next_->status().ok()) {
    next_.reset();
    ConnectNext();
  }
  for (Connection& connection : connections_) connection.link->Flush();
  for (auto next = connections_.begin(); next != connections_.end();) {
    const auto each = next++;
    if (each->link->status().ok()) continue;
    const bool from_server = each->from_server;
    const int worker = each->worker;
    const uint64_t incarnation = each->incarnation;
    connections_.erase(each);
    if (!from_server) Lose(worker, incarnation);
  }
}

void ServerProcess::Hear(const Connection& connection) {
  if (server_ != nullptr && !connection.from_server) server_->Hear(connection.worker, connection.incarnation);
}

void ServerProcess::Lose(int worker, uint64_t incarnation) {
  const auto same = [&](const Connection& other) {
    return !other.from_server && other.worker == worker && other.incarnation == incarnation;
  };
  if (server_ != nullptr && std::ranges::none_of(connections_, same)) server_->Lose(worker, incarnation);
}

// Training goes on without snapshots, but whoever runs it is to know: once each time that they begin to fail.
void ServerProcess::LookAtDisk() {
  const absl::Status& disk = server_->disk_status();
  if (absl::IsAborted(disk)) status_ = disk;
  if (!disk.ok() && !disk_failed_ && status_.ok()) {
    const bool replicated = connector_ != nullptr;
    const char* const next = replicated                        ? "the next server has its state"
                             : server_->snapshot_number() == 0 ? "the job cannot go on, for there is no snapshot"
                                                               : "it goes on from the snapshot before";
    std::fputs(absl::StrCat("gyre server ", options_.server, ": snapshot: ", disk.message(),
                            ": make room there; training goes on, and if this server dies, ", next, "\n")
                   .c_str(),
               stderr);
  }
  disk_failed_ = !disk.ok();
}

void ServerProcess::Admit(AcceptedPeer peer) {
  if (peer.peer.role != Role::kRank && peer.peer.role != Role::kServer) return;
  Connection& connection = connections_.emplace_back();
  connection.worker = peer.peer.rank;
  connection.from_server = peer.peer.role == Role::kServer;
  auto link =
      Link::Create(*loop_, std::move(peer.fd), options_.epoch, options_.host,
                   {.on_setup = [this, &connection](std::string_view payload) { TakeSetup(connection, payload); },
                    .on_message = [this, &connection](const Message& message) { Take(connection, message); },
                    .on_bytes = [this, &connection] { Hear(connection); }});
  if (!link.ok()) return connections_.pop_back();  // the worker finds its connection closed, and comes again
  connection.link = *std::move(link);
}

void ServerProcess::TakeSetup(Connection& connection, std::string_view payload) {
  const bool first = !std::exchange(connection.set_up, true);
  if (server_ == nullptr) {
    if (const absl::Status started = StartServer(payload); absl::IsInvalidArgument(started)) {
      connection.refusal = std::string(started.message());
    } else if (!started.ok()) {
      status_ = started;
    }
  } else if (payload != setup_) {
    connection.refusal =
        "its tensors, tables, rule, consistency, values, snapshot interval, or number of workers are not those of the "
        "others";
  }
  if (connection.from_server) return;
  if (first && server_ != nullptr && connection.refusal.empty() && arena_) connection.link->Offer(*arena_);
}

absl::Status ServerProcess::StartServer(std::string_view payload) {
  ASSIGN_OR_RETURN(const Setup setup, DecodeSetup(payload));
  ASSIGN_OR_RETURN(layout_, Layout::Create(setup.tensors, setup.servers, std::nullopt, setup.tables));
  const bool ring = setup.replicas > 0;
  if (ring && std::ssize(options_.servers) != layout_->servers()) {
    return absl::InvalidArgumentError("a replica: this server was not told where the others are");
  }
  if (options_.server < layout_->servers()) {
    // The values, and those that somebody reads while others take their place.
    constexpr int64_t kCopies = 4, kRounding = int64_t{1} << 20;
    auto arena = FloatArena::Create(kCopies * layout_->BytesOf(options_.server) + kRounding);
    if (arena.ok()) arena_ = *std::move(arena);
  }
  ASSIGN_OR_RETURN(server_, Server::Start({.server = options_.server,
                                           .epoch = options_.epoch,
                                           .incarnation = options_.incarnation,
                                           .consistency = setup.consistency,
                                           .rule = setup.rule,
                                           .workers = setup.workers,
                                           .snapshot_interval = setup.snapshot_interval,
                                           .values_as = setup.values_as,
                                           .ring = ring ? &ring_ : nullptr,
                                           .make = [this](size_t count) { return Make(count); }},
                                          *layout_, clock_, *this, disk_));
  setup_ = payload;
  if (ring) ConnectNext();
  return absl::OkStatus();
}

// The next server learns what to hold from this one, if no worker has come to it before.
void ServerProcess::ConnectNext() {
  const int next = (options_.server + 1) % layout_->servers();
  const Endpoint& endpoint = options_.servers[static_cast<size_t>(next)];
  const HandshakeIdentity self{options_.job_id, options_.epoch, options_.server, Role::kServer};
  const auto on_done = [this, next](absl::StatusOr<Connected> connected) {
    if (!connected.ok()) return void(status_ = connected.status());
    if (connected->peer.role != Role::kServer || connected->peer.rank != next) {
      return void(status_ = absl::FailedPreconditionError(
                      absl::StrCat("at the address of server ", next, " is ", Describe(connected->peer))));
    }
    auto link =
        Link::Create(*loop_, std::move(connected->fd), options_.epoch, options_.host,
                     {.on_setup = [](std::string_view) {},
                      .on_message = [this](const Message& message) { server_->ReceiveFromServer(kNext, message); },
                      .on_bytes = [] {}});
    if (!link.ok()) return void(status_ = link.status());
    next_ = *std::move(link);
    next_->SendSetup(setup_);
    server_->ReachNext();
  };
  connector_ = std::make_unique<Connector>(
      *loop_, ConnectorOptions{.what = absl::StrCat("server ", next, " at ", ToString(endpoint)), .endpoint = endpoint},
      self, options_.secret, on_done);
}

void ServerProcess::Ring::Send(int side, const Message& message) {
  if (side == kNext) {
    if (process_.next_ != nullptr) process_.next_->Send(message);
    return;
  }
  for (Connection& connection : process_.connections_) {
    if (connection.from_server && connection.incarnation == message.to) connection.link->Send(message);
  }
}

Floats ServerProcess::Make(size_t count) {
  return arena_ ? arena_->Make(count) : Floats(count);
}

void ServerProcess::Take(Connection& connection, const Message& message) {
  connection.incarnation = message.incarnation;
  if (connection.from_server) {
    const bool serves = server_ != nullptr && connection.set_up && connection.refusal.empty();
    const int before = serves ? (options_.server + layout_->servers() - 1) % layout_->servers() : -1;
    if (connection.worker == before) server_->ReceiveFromServer(kBefore, message);
    return;
  }
  if (!connection.refusal.empty()) {
    return connection.link->Send({.kind = Kind::kRefuse,
                                  .epoch = options_.epoch,
                                  .incarnation = options_.incarnation,
                                  .to = message.incarnation,
                                  .text = connection.refusal});
  }
  if (server_ != nullptr && connection.set_up) server_->Receive(connection.worker, message);
}

// Every life of the worker that is still connected gets what is meant for it.
void ServerProcess::Send(int peer, const Message& message) {
  for (Connection& connection : connections_) {
    if (!connection.from_server && connection.worker == peer && connection.incarnation == message.to)
      connection.link->Send(message);
  }
}

}  // namespace gyre::ps
