// ServerProcess: a Server (ps/server.h) behind a listening socket, with a folder for its snapshots. It learns what to
// hold from the first worker that connects (ps/process/setup.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "net/acceptor.h"
#include "net/connector.h"
#include "net/endpoint.h"
#include "net/event_loop.h"
#include "ps/process/file_disk.h"
#include "ps/process/float_arena.h"
#include "ps/process/link.h"
#include "ps/server.h"

namespace gyre::ps {

struct ServerProcessOptions {
  int server = 0;            // its number
  uint64_t incarnation = 1;  // how often this server was started, from 1
  std::string job_id{};
  uint64_t epoch = 0;  // the job's
  std::string secret{};
  std::string host{};               // the same at processes that may share memory, or empty (Link::Create)
  std::string folder{};             // of its snapshots, which exists
  std::vector<Endpoint> servers{};  // all of them, by number, where one may have a replica; addresses
  UniqueFd listener{};              // a listening TCP socket
  UniqueFd stop{};                  // readable: as Stop; or empty
};

class ServerProcess final : private Network {
 public:
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Create(ServerProcessOptions options);
  ~ServerProcess() override;

  // Serves until Stop; says on standard error when snapshots begin to fail. Errors: what keeps the server from starting
  // (Server::Start); kAborted once another process has taken its place. One thread.
  absl::Status Run();

  // Thread-safe, async-signal-safe.
  void Stop();

 private:
  struct Connection {
    int worker = 0;  // or server, in whose ring this one is the next
    bool from_server = false;
    uint64_t incarnation = 0;  // of the last message
    std::unique_ptr<Link> link;
    bool set_up = false;
    std::string refusal;  // why this worker cannot be served
  };

  ServerProcess(ServerProcessOptions options, std::unique_ptr<EventLoop> loop);
  // To the neighbours in the ring.
  class Ring final : public Network {
   public:
    explicit Ring(ServerProcess& process) : process_(process) {}
    void Send(int side, const Message& message) override;

   private:
    ServerProcess& process_;
  };

  void Send(int peer, const Message& message) override;
  void ConnectNext();
  void Admit(AcceptedPeer peer);
  void TakeSetup(Connection& connection, std::string_view payload);
  absl::Status StartServer(std::string_view payload);
  void Take(Connection& connection, const Message& message);
  Floats Make(size_t count);
  void AfterEvents();
  void Hear(const Connection& connection);
  void Lose(int worker, uint64_t incarnation);
  void LookAtDisk();

  const ServerProcessOptions options_;
  const std::unique_ptr<EventLoop> loop_;
  SteadyClock clock_;
  FileDisk disk_;
  std::unique_ptr<AuthenticatingListener> listener_;
  std::optional<FloatArena> arena_;  // of the values
  std::list<Connection> connections_;
  Ring ring_{*this};
  std::unique_ptr<Connector> connector_;  // to the next server, with replicas
  std::unique_ptr<Link> next_;
  std::string setup_;
  std::optional<Layout> layout_;
  std::unique_ptr<Server> server_;
  absl::Status status_;
  bool disk_failed_ = false;
  std::atomic<bool> stop_{false};
};

}  // namespace gyre::ps
