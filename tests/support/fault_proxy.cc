#include "support/fault_proxy.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/socket.h"
#include "support/status_matchers.h"

namespace gyre::support {

namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

constexpr size_t kMaxHeld = 256 * 1024;

struct Chunk {
  SteadyTime due;
  std::string bytes;
};

// What a pipe wants done to the whole connection.
enum class Verdict { kGoOn, kEnd, kReset };

// One direction of a connection.
class Pipe {
 public:
  Pipe(int from, int to) : from_(from), to_(to) {}

  bool wants_read() const { return !at_end_ && held_ < kMaxHeld; }
  bool wants_write(SteadyTime now) const { return !chunks_.empty() && chunks_.front().due <= now; }
  bool finished() const { return ended_; }
  int64_t taken() const { return taken_; }

  Verdict Step(const Fault& fault, SteadyTime now) {
    if (fault.kind == Fault::Kind::kDrop && taken_ >= fault.at) return Swallow();
    Verdict verdict = Read(fault, now);
    if (verdict == Verdict::kGoOn) verdict = Write(now);
    if (verdict != Verdict::kGoOn || !chunks_.empty()) return verdict;
    const bool struck = taken_ >= fault.at;
    if (fault.kind == Fault::Kind::kTruncate && struck) return Verdict::kEnd;
    if (fault.kind == Fault::Kind::kReset && struck) return Verdict::kReset;
    if (at_end_ || (fault.kind == Fault::Kind::kHalfClose && struck)) EndOutput();
    return Verdict::kGoOn;
  }

 private:
  // Ends and resets are swallowed too.
  Verdict Swallow() {
    std::string bytes(16 * 1024, '\0');
    for (ssize_t received = 1; !at_end_ && received > 0;) {
      received = recv(from_, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (received > 0) taken_ += received;
      at_end_ = received == 0 || (received < 0 && errno != EAGAIN && errno != EINTR);
    }
    return Verdict::kGoOn;
  }

  Verdict Read(const Fault& fault, SteadyTime now) {
    while (wants_read()) {
      std::string bytes(16 * 1024, '\0');
      const ssize_t received = recv(from_, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (received < 0 && errno == EINTR) continue;
      if (received < 0 && errno == EAGAIN) return Verdict::kGoOn;
      if (received < 0) return Verdict::kReset;
      at_end_ = received == 0;
      bytes.resize(static_cast<size_t>(received));
      Apply(fault, bytes);
      taken_ += received;
      held_ += bytes.size();
      if (!bytes.empty())
        chunks_.push_back(
            {now + (fault.kind == Fault::Kind::kDelay ? fault.delay : std::chrono::milliseconds(0)), std::move(bytes)});
    }
    return Verdict::kGoOn;
  }

  void Apply(const Fault& fault, std::string& bytes) const {
    const int64_t offset = fault.at - taken_;  // of the byte where it strikes
    switch (fault.kind) {
      case Fault::Kind::kNone:
      case Fault::Kind::kDelay: return;
      case Fault::Kind::kFlip:
        if (offset >= 0 && offset < static_cast<int64_t>(bytes.size())) bytes[static_cast<size_t>(offset)] ^= 1;
        return;
      case Fault::Kind::kDrop:
      case Fault::Kind::kTruncate:
      case Fault::Kind::kHalfClose:
      case Fault::Kind::kReset:
        bytes.resize(static_cast<size_t>(std::clamp<int64_t>(offset, 0, static_cast<int64_t>(bytes.size()))));
    }
  }

  Verdict Write(SteadyTime now) {
    while (wants_write(now)) {
      std::string& front = chunks_.front().bytes;
      const ssize_t sent = ended_ ? static_cast<ssize_t>(front.size())
                                  : send(to_, front.data(), front.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) return Verdict::kGoOn;
      if (sent < 0) return Verdict::kReset;
      held_ -= static_cast<size_t>(sent);
      front.erase(0, static_cast<size_t>(sent));
      if (front.empty()) chunks_.pop_front();
    }
    return Verdict::kGoOn;
  }

  void EndOutput() {
    if (!std::exchange(ended_, true)) shutdown(to_, SHUT_WR);
  }

  const int from_;
  const int to_;
  std::deque<Chunk> chunks_;
  size_t held_ = 0;
  int64_t taken_ = 0;
  bool at_end_ = false;
  bool ended_ = false;
};

struct Connection {
  Connection(int number, UniqueFd from_client, UniqueFd to_target)
      : number(number),
        client(std::move(from_client)),
        target(std::move(to_target)),
        to_target(client.get(), target.get()),
        to_client(target.get(), client.get()) {}

  const int number;
  UniqueFd client;
  UniqueFd target;
  Pipe to_target;
  Pipe to_client;
};

void MakeReset(int fd) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

}  // namespace

class FaultProxy::State {
 public:
  explicit State(const Endpoint& target) : target_(target), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    const bool v6 = target.host.find(':') != std::string::npos;
    auto listener = ListenTcp({v6 ? "::1" : "127.0.0.1", 0}, 128, std::chrono::steady_clock::now());
    EXPECT_THAT(listener, IsOk());
    if (!listener.ok()) return;
    listener_ = *std::move(listener);
    endpoint_ = LocalEndpoint(listener_.get()).value_or(Endpoint{});
    EXPECT_THAT(SetNonBlocking(listener_.get(), true), IsOk());
    thread_ = std::thread([this] { Run(); });
  }

  ~State() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    Wake();
    if (thread_.joinable()) thread_.join();
  }

  const Endpoint& endpoint() const { return endpoint_; }

  void Set(Direction direction, const Fault& fault) {
    const std::lock_guard lock(mutex_);
    faults_[direction] = fault;
    Wake();
  }

  int connections() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }

  int64_t bytes(int connection, Direction direction) const {
    const std::lock_guard lock(mutex_);
    const auto found = bytes_.find({connection, direction});
    return found == bytes_.end() ? 0 : found->second;
  }

 private:
  void Wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  }

  void Run() {
    for (;;) {
      Wait();
      Accept();
      // Nothing below blocks. Under the lock, so that a fault strikes all that comes after Set, and bytes() counts all
      // that anybody can have received.
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      const SteadyTime now = std::chrono::steady_clock::now();
      std::erase_if(connections_, [&](Connection& connection) { return !Step(connection, now); });
    }
  }

  void Wait() {
    std::vector<pollfd> waits{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    const SteadyTime now = std::chrono::steady_clock::now();
    for (const Connection& connection : connections_) {
      const auto events = [now](const Pipe& read, const Pipe& write) {
        return static_cast<short>((read.wants_read() ? POLLIN : 0) | (write.wants_write(now) ? POLLOUT : 0));
      };
      // A direction that waits for nothing is left out: its hang-up would only keep us busy.
      const short client = events(connection.to_target, connection.to_client);
      const short target = events(connection.to_client, connection.to_target);
      if (client != 0) waits.push_back({connection.client.get(), client, 0});
      if (target != 0) waits.push_back({connection.target.get(), target, 0});
    }
    poll(waits.data(), waits.size(), 10);  // short, for what is delayed
    uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t drained = read(wake_.get(), &ignored, sizeof(ignored));
  }

  void Accept() {
    UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client) return;
    auto target = ConnectTcp(target_, std::chrono::steady_clock::now() + std::chrono::seconds(5));
    if (!target.ok() || !SetNonBlocking(target->get(), true).ok()) return;
    const std::lock_guard lock(mutex_);
    connections_.emplace_back(count_++, std::move(client), *std::move(target));
  }

  // Whether the connection goes on.
  bool Step(Connection& connection, SteadyTime now) {
    for (const Direction direction : {Direction::kToTarget, Direction::kToClient}) {
      Pipe& pipe = direction == Direction::kToTarget ? connection.to_target : connection.to_client;
      const auto found = faults_.find(direction);
      const bool concerned = found != faults_.end() &&
                             (found->second.connection == Fault::kAll || found->second.connection == connection.number);
      const Verdict verdict = pipe.Step(concerned ? found->second : Fault{}, now);
      bytes_[{connection.number, direction}] = pipe.taken();
      if (verdict == Verdict::kGoOn) continue;
      if (verdict == Verdict::kReset) {
        MakeReset(connection.client.get());
        MakeReset(connection.target.get());
      }
      return false;
    }
    return !connection.to_target.finished() || !connection.to_client.finished();
  }

  const Endpoint target_;
  UniqueFd wake_;
  UniqueFd listener_;
  Endpoint endpoint_;
  std::list<Connection> connections_;  // the thread's own

  mutable std::mutex mutex_;
  std::map<Direction, Fault> faults_;
  std::map<std::pair<int, Direction>, int64_t> bytes_;
  int count_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

FaultProxy::FaultProxy(const Endpoint& target) : state_(std::make_unique<State>(target)) {}

FaultProxy::~FaultProxy() = default;

Endpoint FaultProxy::endpoint() const {
  return state_->endpoint();
}

void FaultProxy::Set(Direction direction, const Fault& fault) {
  state_->Set(direction, fault);
}

int FaultProxy::connections() const {
  return state_->connections();
}

int64_t FaultProxy::bytes(int connection, Direction direction) const {
  return state_->bytes(connection, direction);
}

}  // namespace gyre::support
