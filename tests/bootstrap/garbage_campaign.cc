// Garbage at every kind of listener of a working job: random and mutated handshakes and frames, replays, truncations,
// floods, strangers that stay silent or send a byte at a time; and authenticated peers that send nonsense. Meanwhile
// honest ranks gather, set and get at the store, come and go, and meet through an acceptor; everything they get is
// checked.
//
//   garbage_campaign --seed S --rounds N      N: how many messages of garbage are sent
//
// Exit code 1 if an honest call failed or returned something else than it should, a stranger was let in, or memory
// grew beyond what the listeners may hold.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bootstrap/secret.h"
#include "bootstrap/store_client.h"
#include "bootstrap/store_protocol.h"
#include "bootstrap/store_server.h"
#include "garbage.h"
#include "net/acceptor.h"
#include "net/socket.h"
#include "support/campaign.h"
#include "support/usage.h"

namespace gyre {
namespace {

constexpr int kRanks = 2;
constexpr int kAttackers = 2;
constexpr uint64_t kEpoch = 4;
// The honest and the attackers of this process included, and what authenticated attackers leave in the store.
constexpr int64_t kMemoryBound = int64_t{16} << 20;

using support::MemoryInUse;

TimePoint In(int seconds) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
}

class Campaign {
 public:
  Campaign(uint64_t seed, int64_t rounds) : seed_(seed), rounds_(rounds) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(secret_, MakeSecret());
    ASSIGN_OR_RETURN(store_,
                     StoreServer::Start({"127.0.0.1", 0}, {secret_, "campaign", kEpoch, kRanks}, TimePoint::max()));
    ASSIGN_OR_RETURN(UniqueFd listener, ListenUnix(unix_name_, 64));
    ASSIGN_OR_RETURN(acceptor_, Acceptor::Create(std::move(listener), Rank(0), secret_));
    memory_before_ = MemoryInUse();
    std::vector<std::thread> attackers, honest;
    for (int i = 0; i < kAttackers; ++i)
      attackers.emplace_back([this, i] { Attack(seed_ * kAttackers + static_cast<uint64_t>(i)); });
    for (int rank = 0; rank < kRanks; ++rank) honest.emplace_back([this, rank] { Gather(rank); });
    honest.emplace_back([this] { SetAndGet(); });
    honest.emplace_back([this] { Accept(); });
    honest.emplace_back([this] { Meet(); });
    Watch();
    for (std::thread& thread : attackers) thread.join();
    stop_ = true;
    for (std::thread& thread : honest) thread.join();
    return Verdict();
  }

  void PrintSummary(const absl::Status& verdict) const {
    std::printf(
        "garbage_campaign: seed %llu: %lld messages (%lld from authenticated peers) on %lld connections; "
        "honest: %lld gathers, %lld sets and gets, %lld comings, %lld peers met; memory grew by at most "
        "%lld KiB: %s\n",
        static_cast<unsigned long long>(seed_), Number(sent_), Number(authenticated_), Number(connections_),
        Number(gathers_), Number(set_gets_), Number(comings_), Number(met_),
        static_cast<long long>(memory_growth_ >> 10), verdict.ok() ? "OK" : verdict.ToString().c_str());
  }

 private:
  using Counter = std::atomic<int64_t>;
  static long long Number(const Counter& counter) { return counter.load(); }

  static HandshakeIdentity Rank(int rank) { return {"campaign", kEpoch, rank, Role::kRank}; }
  static HandshakeIdentity Launcher() { return {"campaign", kEpoch, -1, Role::kLauncher}; }

  // --- The honest ---

  void Fail(const absl::Status& status, std::string_view what) {
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = Annotate(status, what);
    failed_ = true;
  }
  void FailUnless(bool holds, std::string_view what) {
    if (!holds) Fail(absl::InternalError("wrong result"), what);
  }

  bool over() const { return stop_ || failed_; }

  // A rank of the job: joins, gathers some hundred times, leaves, comes again. Both ranks keep in step by the gathers.
  void Gather(int rank) {
    constexpr int kGathersPerComing = 100;
    bool last = false;
    while (!last && !failed_) {
      auto client = StoreClient::Connect(store_->endpoint(), Rank(rank), kRanks, secret_, In(60));
      if (!client.ok()) return Fail(client.status(), "an honest rank's connect");
      ++comings_;
      for (int i = 0; i < kGathersPerComing && !last; ++i) {
        // Rank 0 says when it is over, so that no rank waits for one that has stopped.
        const std::string value = absl::StrCat(rank, i, rank == 0 && stop_ ? " stop" : "");
        const auto values = (*client)->Gather("honest", value, In(60));
        if (!values.ok()) return Fail(values.status(), "an honest rank's gather");
        FailUnless(values->size() == kRanks && (*values)[static_cast<size_t>(rank)] == value &&
                       (*values)[1] == absl::StrCat(1, i),
                   "an honest gather");
        ++gathers_;
        last = (*values)[0].ends_with(" stop");
      }
    }
  }

  void SetAndGet() {
    auto client = StoreClient::Connect(store_->endpoint(), Launcher(), kRanks, secret_, In(60));
    if (!client.ok()) return Fail(client.status(), "the launcher's connect");
    for (int64_t i = 0; !over(); ++i) {
      const std::string key = absl::StrCat("honest ", i % 50), value = std::string(static_cast<size_t>(i % 5000), 'v');
      Fail((*client)->Set(key, value, In(60)), "an honest set");
      const auto got = (*client)->Get(key, In(60));
      Fail(got.status(), "an honest get");
      if (got.ok()) FailUnless(*got == value, "an honest get");
      const auto count = (*client)->Add("honest counter", 1, In(60));
      FailUnless(count.ok() && *count == i + 1, "an honest add");
      ++set_gets_;
    }
  }

  // The acceptor's side: echoes a byte to each peer.
  void Accept() {
    while (!over()) {
      auto accepted = acceptor_->Next(std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
      if (!accepted.ok()) continue;
      FailUnless(accepted->peer == Rank(1), "the acceptor let somebody else in");
      ++let_in_;
      std::byte byte{};
      // The peer is gone where it was in mid-handshake at the end.
      if (ReceiveExactly(accepted->fd.get(), MutableBytes(&byte, 1), In(10)).ok()) {
        SendAll(accepted->fd.get(), Bytes(&byte, 1), In(10)).IgnoreError();
      }
    }
  }

  void Meet() {
    const auto connect = [this](TimePoint until) { return ConnectUnix(unix_name_, until); };
    while (!over()) {
      const auto connected = ConnectAuthenticated("rank 0", connect, Rank(1), secret_, In(60));
      if (over()) return;
      Fail(connected.status(), "an honest peer's connect");
      if (!connected.ok()) return;
      std::byte byte{42};
      absl::Status status = SendAll(connected->fd.get(), Bytes(&byte, 1), In(60));
      if (status.ok()) status = ReceiveExactly(connected->fd.get(), MutableBytes(&byte, 1), In(60));
      if (over()) return;
      Fail(status, "an honest peer's byte");
      ++met_;
    }
  }

  // --- The others ---

  void Attack(uint64_t seed) {
    GarbageMaker garbage(seed, Rank(1), secret_);
    std::deque<UniqueFd> lingering;  // silent ones, and those that send a byte at a time
    while (sent_ < rounds_ && !failed_) {
      const bool at_store = garbage.Below(2) == 0;
      auto fd = at_store ? ConnectTcp(store_->endpoint(), In(1)) : ConnectUnix(unix_name_, In(1));
      if (!fd.ok()) continue;  // floods have their price for the attacker too
      ++connections_;
      switch (garbage.Below(8)) {
        case 0: Dribble(garbage, lingering, *std::move(fd)); break;
        case 1:
          if (at_store) SendNonsenseAsAPeer(garbage, fd->get());
          break;
        case 2: AnswerChallenge(garbage, fd->get()); break;
        case 3: break;  // comes and goes
        default: Send(fd->get(), Burst(garbage, 100)); break;
      }
    }
  }

  // Some messages as one piece of bytes.
  std::string Burst(GarbageMaker& garbage, uint64_t most) {
    const uint64_t count = 1 + garbage.Below(most);
    std::string bytes;
    for (uint64_t i = 0; i < count; ++i) bytes += garbage.Message();
    sent_ += static_cast<int64_t>(count);
    return bytes;
  }

  static void Send(int fd, const std::string& bytes) {
    SendAll(fd, AsBytes(bytes), std::chrono::steady_clock::now() + std::chrono::milliseconds(200)).IgnoreError();
  }

  void Dribble(GarbageMaker& garbage, std::deque<UniqueFd>& lingering, UniqueFd fd) {
    lingering.push_back(std::move(fd));
    if (lingering.size() > 40) lingering.pop_front();
    const std::string message = Burst(garbage, 1);
    for (size_t i = 0; i < lingering.size() && i < message.size(); ++i) Send(lingering[i].get(), message.substr(i, 1));
  }

  // A hello that is right, then a guess in place of the proof.
  void AnswerChallenge(GarbageMaker& garbage, int fd) {
    std::string hello;
    const HandshakeClient client(Rank(1), "not the secret, but long enough", hello);
    Send(fd, hello);
    std::string challenge(kChallengeBytes, '\0');
    if (ReceiveExactly(fd, AsMutableBytes(challenge), In(1)).ok()) Send(fd, Burst(garbage, 10));
  }

  void SendNonsenseAsAPeer(GarbageMaker& garbage, int fd) {
    if (!AuthenticateTo(fd, Launcher(), secret_, In(5)).ok()) return;
    std::string bytes;
    const uint64_t count = 1 + garbage.Below(100);
    for (uint64_t i = 0; i < count; ++i)
      bytes += garbage.Below(50) == 0 ? garbage.Message() : garbage.WellFormedFrame();
    sent_ += static_cast<int64_t>(count);
    authenticated_ += static_cast<int64_t>(count);
    Send(fd, bytes);
    // Until the server has read all of it, or cut us off.
    shutdown(fd, SHUT_WR);
    std::string answer(64 << 10, '\0');
    const TimePoint deadline = In(2);
    while (ReceiveSome(fd, AsMutableBytes(answer), deadline).ok()) {
    }
  }

  // --- Watching ---

  void Watch() {
    int64_t next = rounds_ / 10;
    while (sent_ < rounds_ && !failed_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      memory_growth_ = std::max(memory_growth_, MemoryInUse() - memory_before_);
      if (sent_ < next) continue;
      std::printf("%lld of %lld messages, %lld honest gathers, memory %+lld KiB\n", Number(sent_),
                  static_cast<long long>(rounds_), Number(gathers_), static_cast<long long>(memory_growth_ >> 10));
      std::fflush(stdout);
      next += rounds_ / 10;
    }
  }

  absl::Status Verdict() {
    RETURN_IF_ERROR(failure_);
    if (gathers_ == 0 || set_gets_ == 0 || met_ == 0) return absl::InternalError("the honest got nothing done");
    // One more may be under way at the end.
    if (let_in_ > met_ + 1) return absl::InternalError("the acceptor let in more peers than came");
    if (memory_growth_ > kMemoryBound) return absl::ResourceExhaustedError("memory grew beyond the bound");
    return absl::OkStatus();
  }

  const uint64_t seed_;
  const int64_t rounds_;
  const std::string unix_name_ = absl::StrCat("@garbage-campaign-", getpid());
  std::string secret_;
  std::unique_ptr<StoreServer> store_;
  std::unique_ptr<Acceptor> acceptor_;
  std::atomic<bool> stop_ = false, failed_ = false;
  Counter sent_ = 0, authenticated_ = 0, connections_ = 0, gathers_ = 0, set_gets_ = 0, comings_ = 0, met_ = 0;
  Counter let_in_ = 0;
  int64_t memory_before_ = 0, memory_growth_ = 0;
  std::mutex mutex_;
  absl::Status failure_;
};

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  const auto options = gyre::support::ParseCampaignOptions(
      argc, argv,
      {.about = "Random and mutated messages at every listening socket of a working job",
       .rounds = 10'000,
       .what = "how many messages of garbage"});
  gyre::Campaign campaign(options.seed, options.rounds);
  const absl::Status verdict = campaign.Run();
  campaign.PrintSummary(verdict);
  return verdict.ok() ? 0 : 1;
}
