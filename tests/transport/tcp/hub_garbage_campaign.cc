// Everything that may come to a hub's listening socket while a job of three ranks goes on over it, in three parts:
//
//   strangers   random bytes, mutated and recorded handshakes, half-open connections, floods: 7 of 10 messages
//   impostors   handshakes that are almost right: replayed, of another secret, job, epoch, of another connection: a
//               tenth as many tries as there are rounds, each of which must be refused
//   liars       ranks of the job that prove themselves and then send what they like, and listeners in a rank's place
//               that answer what they like: 2 of 10 messages. They may end their own connections
//
//   hub_garbage_campaign --seed S --rounds N [--only NAME]
//
// Exit code 1 if a transfer of the job failed or brought other bytes, an honest rank was taken for lost, somebody was
// let in, memory grew beyond the bound, or descriptors were left over.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bootstrap/secret.h"
#include "net/socket.h"
#include "support/campaign.h"
#include "support/usage.h"
#include "transport/tcp/campaign_job.h"
#include "transport/tcp/hub_attackers.h"
#include "transport/tcp/hub_fixture.h"

namespace gyre::tcp {
namespace {

using support::MemoryInUse;
using support::OpenDescriptors;

constexpr int kAttackers = 2;
constexpr uint64_t kEpoch = 5;
constexpr char kJob[] = "campaign";
// Before authentication, by the process with its attackers in it.
constexpr int64_t kMemoryBound = int64_t{16} << 20;

long long Number(int64_t number) {
  return number;
}

// The floods and what they flood are in one process here.
void RaiseDescriptorLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 16384);
  setrlimit(RLIMIT_NOFILE, &limit);
}

class Campaign {
 public:
  Campaign(uint64_t seed, int64_t rounds) : seed_(seed), rounds_(rounds) {}

  absl::Status Run(const std::string& part) {
    RaiseDescriptorLimit();
    ASSIGN_OR_RETURN(secret_, MakeSecret());
    const int64_t descriptors = OpenDescriptors();
    if (part != "liars") RETURN_IF_ERROR(Annotate(RunUninvited(part), "uninvited"));
    if (part.empty() || part == "liars") RETURN_IF_ERROR(Annotate(RunLiars(), "liars"));
    const int64_t left = OpenDescriptors() - descriptors;
    std::printf("descriptors left over: %lld\n", Number(left));
    return left == 0 ? absl::OkStatus() : absl::InternalError("descriptors were left over");
  }

 private:
  uint64_t Seed(uint64_t of) const { return (seed_ << 20) + of; }

  // --- Strangers and impostors ---

  absl::Status RunUninvited(const std::string& part) {
    ASSIGN_OR_RETURN(job_, CampaignJob::Start({.job_id = kJob, .secret = secret_, .epoch = kEpoch, .seed = seed_}));
    Target target{*job_, kJob, kEpoch, secret_, {}};
    recorded_ = {};
    for (int i = 0; i < 2 * CampaignJob::kHubs; ++i) {
      const int number = i % CampaignJob::kHubs;
      ASSIGN_OR_RETURN(Recording recording, RecordFromHub(target, number));
      target.recordings.push_back(std::move(recording));
      ++recorded_[static_cast<size_t>(number)];
    }
    while (job_->transfers() < 200 && !job_->failed()) Sleep(20);
    memory_before_ = MemoryInUse();
    if (part.empty() || part == "strangers") RETURN_IF_ERROR(Annotate(RunStrangers(target), "strangers"));
    if (part.empty() || part == "impostors") RETURN_IF_ERROR(Annotate(RunImpostors(target), "impostors"));
    job_->Pause();
    RETURN_IF_ERROR(CheckNobodyElseCame());
    std::printf("job: %lld transfers over %lld channels\n", Number(job_->transfers()), Number(job_->channels()));
    job_->Stop();
    RETURN_IF_ERROR(job_->failure());
    job_.reset();
    return absl::OkStatus();
  }

  static void Sleep(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

  // Runs `attack` on the attackers' threads, each until it returns false, and watches the process meanwhile.
  absl::Status Attack(const std::function<bool(int attacker)>& attack, const std::function<std::string()>& progress) {
    std::atomic<int> running = kAttackers;
    std::vector<std::thread> threads;
    for (int i = 0; i < kAttackers; ++i) {
      threads.emplace_back([&, i] {
        while (!job_->failed() && attack(i)) {
        }
        --running;
      });
    }
    TimePoint next = In(10'000);
    int64_t growth = 0;
    while (running > 0) {
      Sleep(50);
      growth = std::max(growth, MemoryInUse() - memory_before_);
      if (std::chrono::steady_clock::now() < next) continue;
      std::printf("%s, %lld transfers of the job, memory %+lld KiB\n", progress().c_str(), Number(job_->transfers()),
                  Number(growth >> 10));
      std::fflush(stdout);
      next = In(10'000);
    }
    for (std::thread& thread : threads) thread.join();
    std::printf("%s; memory grew by at most %lld KiB\n", progress().c_str(), Number(growth >> 10));
    std::fflush(stdout);
    RETURN_IF_ERROR(job_->failure());
    return growth <= kMemoryBound ? absl::OkStatus() : absl::ResourceExhaustedError("memory grew beyond the bound");
  }

  absl::Status RunStrangers(const Target& target) {
    const int64_t share = rounds_ * 7 / 10;
    std::atomic<int64_t> messages = 0, connections = 0;
    std::vector<std::unique_ptr<Stranger>> strangers;
    for (int i = 0; i < kAttackers; ++i)
      strangers.push_back(std::make_unique<Stranger>(target, Seed(1 + static_cast<uint64_t>(i))));
    return Attack(
        [&](int i) {
          Stranger& stranger = *strangers[static_cast<size_t>(i)];
          const int64_t before = stranger.messages(), connected = stranger.connections();
          stranger.AttackOnce();
          connections += stranger.connections() - connected;
          return (messages += stranger.messages() - before) < share;
        },
        [&] {
          return absl::StrCat("strangers: ", messages.load(), " messages on ", connections.load(), " connections");
        });
  }

  absl::Status RunImpostors(const Target& target) {
    constexpr int64_t kMostWrong = 10;
    const int64_t share = std::max<int64_t>(rounds_ / 10, 1);
    const int64_t refused_before = SettledRefusals();
    const int64_t dropped_before = Sum(&AcceptorCounts::dropped);
    std::atomic<int64_t> tries = 0, wrong = 0;
    std::vector<std::unique_ptr<Impostor>> impostors;
    for (int i = 0; i < kAttackers; ++i)
      impostors.push_back(std::make_unique<Impostor>(target, Seed(8 + static_cast<uint64_t>(i))));
    RETURN_IF_ERROR(Attack(
        [&](int i) {
          if (++tries > share) return false;
          const absl::Status refused = impostors[static_cast<size_t>(i)]->TryOnce();
          if (!refused.ok() && ++wrong < kMostWrong) std::printf("%s\n", refused.ToString().c_str());
          return wrong < kMostWrong;
        },
        [&] {
          return absl::StrCat("impostors: ", std::min(tries.load(), share), " tries, ", wrong.load(), " wrong");
        }));
    int64_t others = 0;  // second connections, which also end unproved
    for (int kind = 0; kind < Impostor::kKinds; ++kind) {
      int64_t sum = 0;
      for (const auto& impostor : impostors) sum += impostor->tries()[static_cast<size_t>(kind)];
      if (kind == Impostor::kOtherConnection) others = sum;
      std::printf("  %-17s %8lld tries\n", Impostor::Name(static_cast<Impostor::Kind>(kind)).data(), Number(sum));
    }
    const int64_t refused = SettledRefusals() - refused_before;
    std::printf("impostors: %lld of %lld refused by the hubs' own counts\n", Number(refused - others), Number(share));
    if (wrong > 0 || refused != share + others || Sum(&AcceptorCounts::dropped) != dropped_before) {
      return absl::InternalError("a try did not end in a refusal");
    }
    return absl::OkStatus();
  }

  int64_t Sum(int64_t AcceptorCounts::*count) const {
    int64_t sum = 0;
    for (int number = 0; number < CampaignJob::kHubs; ++number) sum += job_->hub(number).counts().*count;
    return sum;
  }

  // Once no handshake is under way any more, or after a minute.
  int64_t SettledRefusals() const {
    const TimePoint deadline = In(60'000);
    for (;;) {
      const int64_t before = Sum(&AcceptorCounts::refused);
      Sleep(300);
      const int64_t ended = Sum(&AcceptorCounts::refused) + Sum(&AcceptorCounts::authenticated) +
                            Sum(&AcceptorCounts::timed_out) + Sum(&AcceptorCounts::dropped);
      const bool settled = Sum(&AcceptorCounts::refused) == before && Sum(&AcceptorCounts::accepted) == ended;
      if (settled || std::chrono::steady_clock::now() >= deadline) return before;
    }
  }

  // Nobody was let in but the job's own ranks and those who were recorded.
  absl::Status CheckNobodyElseCame() const {
    for (int number = 0; number < CampaignJob::kHubs; ++number) {
      const AcceptorCounts counts = job_->hub(number).counts();
      const int64_t expected = job_->expected_peers(number) + recorded_[static_cast<size_t>(number)];
      std::printf("hub %d: %lld connections: %lld refused, %lld timed out, %lld dropped, %lld let in, %lld expected\n",
                  number, Number(counts.accepted), Number(counts.refused), Number(counts.timed_out),
                  Number(counts.dropped), Number(counts.authenticated), Number(expected));
      if (counts.authenticated != expected) return absl::InternalError("somebody else was let in");
    }
    return absl::OkStatus();
  }

  // --- Liars ---

  // Job after job: a liar that was found out is of little use in the same one again.
  absl::Status RunLiars() {
    constexpr int kLiars = 24, kDecoys = 3;
    const int64_t share = rounds_ * 2 / 10;
    int64_t frames = 0, connections = 0, lost = 0, announcements = 0, transfers = 0, jobs = 0;
    support::Mutator random(Seed(20));
    while (frames < share) {
      CampaignJobOptions options{.job_id = kJob, .secret = secret_, .epoch = kEpoch, .seed = seed_, .liars = kLiars};
      std::vector<UniqueFd> listeners;
      for (int i = 0; i < kDecoys; ++i) {
        ASSIGN_OR_RETURN(UniqueFd listener, ListenTcp(Loopback(0), 16, In(kPatience)));
        ASSIGN_OR_RETURN(const Endpoint endpoint, LocalEndpoint(listener.get()));
        options.decoys.push_back(endpoint);
        listeners.push_back(std::move(listener));
      }
      ASSIGN_OR_RETURN(job_, CampaignJob::Start(options));
      while (job_->transfers() < 20 && !job_->failed()) Sleep(5);
      if (jobs == 0) memory_before_ = MemoryInUse();
      const Target target{*job_, kJob, kEpoch, secret_, {}};
      Liars liars(target, kLiars, Seed(100 + static_cast<uint64_t>(jobs)));
      for (int i = 0; i < 300 && !job_->failed(); ++i) {
        liars.LieOnce();
        if (i % 3 == 0) frames += MeetDecoys(target, listeners, random);
      }
      frames += liars.frames();
      connections += liars.connections();
      lost += job_->lost_liars();
      announcements += job_->announcements();
      job_->Stop();
      transfers += job_->transfers();
      RETURN_IF_ERROR(job_->failure());
      job_.reset();
      if (++jobs % 10 != 0) continue;
      std::printf("liars: %lld frames in %lld jobs, memory %+lld KiB\n", Number(frames), Number(jobs),
                  Number((MemoryInUse() - memory_before_) >> 10));
      std::fflush(stdout);
    }
    const int64_t growth = MemoryInUse() - memory_before_;
    std::printf(
        "liars: %lld frames on %lld connections in %lld jobs; found out %lld times; %lld announcements; %lld transfers "
        "of the jobs; memory grew by %lld KiB\n",
        Number(frames), Number(connections), Number(jobs), Number(lost), Number(announcements), Number(transfers),
        Number(growth >> 10));
    if (lost == 0 || announcements == 0) return absl::InternalError("no lie was ever heard");
    // Whoever is let in may make a hub hold more, but what it held goes with it.
    return growth <= 4 * kMemoryBound ? absl::OkStatus() : absl::ResourceExhaustedError("memory grew beyond the bound");
  }

  // Has a hub connect to a listener in a rank's place.
  int64_t MeetDecoys(const Target& target, const std::vector<UniqueFd>& listeners, support::Mutator& random) {
    int64_t frames = 0;
    const auto which = static_cast<int>(random.Below(listeners.size()));
    const int rank = target.job.first_decoy() + which;
    const int peers[] = {rank};
    target.job.hub(static_cast<int>(random.Below(CampaignJob::kHubs))).Connect(peers, TimePoint{}).IgnoreError();
    Sleep(1);
    const HandshakeIdentity self{kJob, kEpoch, random.OneIn(20) ? rank + 1 : rank, Role::kRank};
    ReceiveAsDecoy(listeners[static_cast<size_t>(which)].get(), self, target, random, frames);
    return frames;
  }

  const uint64_t seed_;
  const int64_t rounds_;
  std::string secret_;
  std::unique_ptr<CampaignJob> job_;
  std::array<int64_t, CampaignJob::kHubs> recorded_{};
  int64_t memory_before_ = 0;
};

}  // namespace
}  // namespace gyre::tcp

int main(int argc, char** argv) {
  const auto options =
      gyre::support::ParseCampaignOptions(argc, argv,
                                          {.about = "Strangers, impostors and liars at the hubs of a working job",
                                           .rounds = 10'000,
                                           .what = "how many messages",
                                           .parts = {"strangers", "impostors", "liars"}});
  gyre::tcp::Campaign campaign(options.seed, options.rounds);
  const absl::Status verdict = campaign.Run(options.only);
  std::printf("hub_garbage_campaign: seed %llu, %lld rounds: %s\n", static_cast<unsigned long long>(options.seed),
              static_cast<long long>(options.rounds), verdict.ok() ? "OK" : verdict.ToString().c_str());
  return verdict.ok() ? 0 : 1;
}
