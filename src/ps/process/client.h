// Client: a training process's side of the parameter server: a Worker (ps/worker.h) and its connections to all servers,
// on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "net/connector.h"
#include "net/endpoint.h"
#include "net/event_loop.h"
#include "ps/process/float_arena.h"
#include "ps/process/link.h"
#include "ps/process/setup.h"
#include "ps/worker.h"

namespace gyre::ps {

struct ClientOptions {
  std::vector<Endpoint> servers{};  // by number; addresses: nothing is looked up
  std::string job_id{};
  std::string secret{};
  std::string host{};      // the same at processes that may share memory, or empty (Link::Create)
  WorkerOptions worker{};  // its rule is the setup's
  Setup setup{};           // the same at all workers
};

// Calls are for one thread at a time. Those with a deadline block until then at most.
class Client final : private Network, private Random {
 public:
  // `weights`: a span a tensor of the setup, which outlive this object; written between End and Begin, from another
  // thread, and first by servers that have no values if WorkerOptions::has_first_values. Connects in the background,
  // and again whenever a connection ends.
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options,
                                                        std::span<const std::span<float>> weights);
  ~Client() override;

  // Waits until the next step may begin, and begins it: the weights are its model.
  // Returns its number. Besides Worker::Begin's:
  //   kDeadlineExceeded  says what was waited for
  absl::StatusOr<uint64_t> Begin(TimePoint deadline);

  // Pushes; returns when the gradient may be written again.
  // `rows`: of tables, as Worker::End's.
  absl::Status End(std::span<const float> gradient, float learning_rate, std::vector<Floats> rows = {});

  // Between Begin and End: rows of a table for this step, one after the other in `values`. Besides Worker::AskRows's:
  //   kDeadlineExceeded  says which server was waited for; nothing is written then
  absl::Status PullRows(int table, std::span<const int64_t> ids, std::span<float> values, TimePoint deadline);

  // Worker's, as of the last Begin or End.
  int64_t pushed_bytes() const { return pushed_bytes_; }
  int64_t pulled_bytes() const { return pulled_bytes_; }

  // Waits until the servers have all pushes.
  absl::Status Deliver(TimePoint deadline);

 private:
  struct Peer {
    std::unique_ptr<Connector> connector;
    std::optional<FloatArena> arena;  // of the link: what it has lent may still be read when it has ended
    std::unique_ptr<Link> link;
    uint64_t incarnation = 0;  // of the link's last message
    absl::Status trouble;      // why there is no link
  };
  // What the thread shall do for a caller, once it can: empty while it cannot.
  using Attempt = std::function<std::optional<absl::Status>()>;
  using Reason = std::function<std::string()>;  // why it cannot

  Client(ClientOptions options, Layout layout, std::unique_ptr<EventLoop> loop);
  void Send(int peer, const Message& message) override;
  uint64_t Next() override { return random_(); }
  absl::Status Call(const Attempt& attempt, const Reason& reason, TimePoint deadline);
  std::string WhyNotBegun() const;
  std::string WhyNotDelivered() const;
  std::string WhyNoRows() const;
  std::string TroubleWith(int server) const;  // ": why there is no link", or nothing
  void Run();
  void Connect(int server);
  Way WayTo(int server) const;
  Floats Make(int server, size_t count);
  int64_t ArenaBytes(int server) const;
  void Take(int server, const Message& message);
  void Hear(int server);
  void AfterEvents();
  void Try();

  const ClientOptions options_;
  const Layout layout_;
  const std::string setup_;
  const std::unique_ptr<EventLoop> loop_;
  SteadyClock clock_;
  std::mt19937_64 random_;
  // Of the thread alone:
  std::vector<Peer> peers_;
  std::unique_ptr<Worker> worker_;
  absl::Status broken_;
  int64_t pushed_bytes_ = 0, pulled_bytes_ = 0;  // written while a caller waits

  std::mutex mutex_;
  std::condition_variable answered_;
  const Attempt* attempt_ = nullptr;  // guarded by mutex_, as are the next four
  const Reason* reason_ = nullptr;
  std::optional<absl::Status> answer_;
  std::string why_not_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace gyre::ps
