#include "bootstrap/membership.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bootstrap/hydra.h"
#include "bootstrap/local_rendezvous.h"
#include "bootstrap/secret.h"
#include "net/endpoint.h"
#include "net/socket.h"

namespace gyre {

namespace {

constexpr auto kRetryPause = std::chrono::milliseconds(20);
// A port left behind by a dead job may now be a program's that says nothing.
constexpr auto kStaleAttempt = std::chrono::seconds(2);

// What the ways to meet end in.
struct Met {
  std::string secret;
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<StoreClient> client;
  bool apart = false;
};

class Joiner {
 public:
  Joiner(const Config& config, const Environment& environment, const Identity& identity, TimePoint deadline)
      : config_(config), environment_(environment), identity_(identity), deadline_(deadline) {}

  absl::StatusOr<Met> Join() {
    // Of who has met, only a launcher's store knows.
    if (config_.strategy.life > 1 && identity_.meeting != Meeting::kLauncherStore) return Apart();
    switch (identity_.meeting) {
      case Meeting::kAlone: return Alone();
      case Meeting::kLauncherStore: return AtLaunchersStore();
      case Meeting::kRankZeroStore: return AtGivenStore();
      case Meeting::kLocalFile:
      case Meeting::kHydraFile: return ByLocalFile();
    }
    return absl::InternalError("no such meeting");
  }

 private:
  bool first() const { return identity_.rank == 0; }

  // The secret that was given, by the nearest way; empty if none was.
  absl::StatusOr<std::string> GivenSecret() const {
    if (config_.secret) return *config_.secret;
    if (config_.secret_fd) return ReadSecretFd(*config_.secret_fd);
    if (config_.secret_file) return ReadSecretFile(*config_.secret_file);
    return std::string();
  }

  // Without a given secret, ranks at a loopback address share the user's own.
  absl::StatusOr<std::string> SecretFor(const Endpoint& store) const {
    ASSIGN_OR_RETURN(std::string secret, GivenSecret());
    if (!secret.empty()) return secret;
    if (IsLoopback(store)) return UserSecret(environment_);
    return absl::FailedPreconditionError(absl::StrCat(
        "the ranks meet at ", ToString(store),
        ", which is not a loopback address, and no secret was given: put 32 random bytes into a file of mode 0600 on "
        "every host and set GYRE_SECRET_FILE to it"));
  }

  absl::StatusOr<std::unique_ptr<StoreServer>> Serve(const Endpoint& at, const std::string& secret) const {
    return StoreServer::Start(at, {secret, identity_.job_id, identity_.epoch, identity_.size}, deadline_);
  }

  // Connects, by `reach`, and waits until all ranks have.
  absl::StatusOr<std::unique_ptr<StoreClient>> Meet(const Endpoint& store, const std::string& secret,
                                                    TimePoint reach = TimePoint::max()) const {
    const HandshakeIdentity self{identity_.job_id, identity_.epoch, identity_.rank, Role::kRank};
    ASSIGN_OR_RETURN(auto client, StoreClient::Connect(store, self, identity_.size, secret, deadline_, reach,
                                                       config_.strategy.life));
    RETURN_IF_ERROR(client->Gather("join", "", deadline_).status());
    return client;
  }

  // A descriptor that is gone does not matter to a rank that meets neither ranks nor servers: a program that the rank
  // of such a job has started (docs/decisions/secret_descriptor.md).
  absl::StatusOr<Met> Alone() const {
    Met met;
    const auto given = GivenSecret();
    if (!config_.secret_fd || !config_.strategy.servers.empty()) RETURN_IF_ERROR(given.status());
    if (given.ok()) met.secret = *given;
    if (met.secret.empty()) {
      ASSIGN_OR_RETURN(met.secret, MakeSecret());
    }
    return met;
  }

  absl::StatusOr<Met> Apart() const {
    Met met{.secret = {}, .server = nullptr, .client = nullptr, .apart = true};
    ASSIGN_OR_RETURN(met.secret, SecretFor(Endpoint{"127.0.0.1", 0}));
    return met;
  }

  absl::StatusOr<Met> AtLaunchersStore() const {
    Met met;
    ASSIGN_OR_RETURN(const Endpoint store, ParseEndpoint(identity_.store));
    ASSIGN_OR_RETURN(met.secret, SecretFor(store));
    auto client = Meet(store, met.secret);
    met.apart = absl::IsAlreadyExists(client.status());
    if (met.apart) return met;
    RETURN_IF_ERROR(client.status());
    met.client = *std::move(client);
    return met;
  }

  absl::StatusOr<Met> AtGivenStore() const {
    Met met;
    ASSIGN_OR_RETURN(const Endpoint store, ParseEndpoint(identity_.store));
    ASSIGN_OR_RETURN(met.secret, SecretFor(store));
    bool taken = false;
    const auto attempt = [&]() -> absl::StatusOr<std::unique_ptr<StoreClient>> {
      if (first()) {
        auto server = Serve(store, met.secret);
        // Somebody serves there already: an earlier Runtime of this process, or a launcher. The handshake will show
        // whether it is of this job.
        taken = absl::IsAlreadyExists(server.status());
        if (!taken) {
          RETURN_IF_ERROR(server.status());
          met.server = *std::move(server);
        }
      }
      if (!taken) return Meet(store, met.secret);
      // What holds the port may be gone before it is reached: then the port is free, and this rank is to serve.
      auto client = Meet(store, met.secret, std::chrono::steady_clock::now() + kStaleAttempt);
      if (absl::IsDeadlineExceeded(client.status()) && std::chrono::steady_clock::now() < deadline_) {
        return absl::UnavailableError(client.status().message());
      }
      return client;
    };
    auto client = MeetAgain(attempt);
    if (!client.ok() && taken) {
      return Annotate(client.status(), "rank 0 found the store's port taken and could not use what is there");
    }
    RETURN_IF_ERROR(client.status());
    met.client = *std::move(client);
    return met;
  }

  absl::StatusOr<Met> ByLocalFile() const {
    Met met;
    ASSIGN_OR_RETURN(const std::string directory, UserDirectory(environment_));
    ASSIGN_OR_RETURN(met.secret, SecretFor(Endpoint{"127.0.0.1", 0}));
    const LocalRendezvous rendezvous(directory, identity_.job_id, identity_.epoch);
    if (first()) {
      ASSIGN_OR_RETURN(met.server, Serve(Endpoint{"127.0.0.1", 0}, met.secret));
      RETURN_IF_ERROR(rendezvous.Publish(met.server->endpoint()));
      auto client = Meet(met.server->endpoint(), met.secret);
      rendezvous.Remove(met.server->endpoint());
      RETURN_IF_ERROR(client.status());
      met.client = *std::move(client);
      return met;
    }
    const auto attempt = [&]() -> absl::StatusOr<std::unique_ptr<StoreClient>> {
      ASSIGN_OR_RETURN(const Endpoint store, rendezvous.Read());
      return MeetAtPerhapsStale(store, met.secret);
    };
    ASSIGN_OR_RETURN(met.client, MeetAgain(attempt));
    return met;
  }

  // Failing to connect or to prove oneself may only mean that the file is a dead job's: read it again. Who has proved
  // itself waits as long as it may: to go and come again would be to join twice.
  absl::StatusOr<std::unique_ptr<StoreClient>> MeetAtPerhapsStale(const Endpoint& store,
                                                                  const std::string& secret) const {
    const TimePoint attempt = std::min(deadline_, std::chrono::steady_clock::now() + kStaleAttempt);
    // Rank 0 listened before it published: where nobody listens there is no use in Connect's retries.
    if (const auto probe = ConnectTcp(store, attempt); !probe.ok()) {
      return absl::UnavailableError(probe.status().message());
    }
    const HandshakeIdentity self{identity_.job_id, identity_.epoch, identity_.rank, Role::kRank};
    auto client = StoreClient::Connect(store, self, identity_.size, secret, deadline_, attempt);
    const absl::Status& why = client.status();
    if (absl::IsFailedPrecondition(why) || absl::IsAborted(why)) return why;
    if (!why.ok()) return absl::UnavailableError(why.message());
    RETURN_IF_ERROR((*client)->Gather("join", "", deadline_).status());
    return client;
  }

  // Rank 0's store may be one that is just closing, of an earlier Runtime of the same job or of an older epoch: then
  // the next one is about to open. Rank 0 itself has no reason to try again but that such a store holds the port, or
  // held it.
  template <typename Attempt>
  absl::StatusOr<std::unique_ptr<StoreClient>> MeetAgain(Attempt attempt) const {
    std::string before;  // why the first store was left: of more use at the end than that there is none now
    for (;;) {
      absl::StatusOr<std::unique_ptr<StoreClient>> client = attempt();
      const absl::Status& status = client.status();
      if (client.ok()) return client;
      if (before.empty() && absl::IsCancelled(status)) before = absl::StrCat("; before: ", status.message());
      const bool late = std::chrono::steady_clock::now() + kRetryPause >= deadline_;
      if (!absl::IsUnavailable(status) && !absl::IsCancelled(status)) {
        return absl::Status(status.code(), absl::StrCat(status.message(), before));
      }
      if (late) {
        return absl::DeadlineExceededError(
            absl::StrCat("rank 0's store was not reached in time: ", status.message(), before));
      }
      std::this_thread::sleep_for(kRetryPause);
    }
  }

  const Config& config_;
  const Environment& environment_;
  const Identity& identity_;
  const TimePoint deadline_;
};

// MPICH names its jobs by nothing in the environment, but by the launcher's process.
absl::Status FindHydraJob(const Environment& environment, Identity& identity) {
  int fd = -1;
  const auto text = environment("PMI_FD");
  if (!text || !absl::SimpleAtoi(*text, &fd) || fd < 0) {
    return absl::InvalidArgumentError(absl::StrCat("PMI_FD=", text.value_or(""), " is no descriptor"));
  }
  ASSIGN_OR_RETURN(const std::string name, HydraJobName(fd));
  identity.job_id = identity.job_id.empty() ? name : absl::StrCat(identity.job_id, "-", name);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Membership>> Membership::Join(const Config& config, const Environment& environment,
                                                             TimePoint deadline) {
  ASSIGN_OR_RETURN(Identity identity, FindIdentity(config, environment));
  if (identity.meeting == Meeting::kHydraFile) RETURN_IF_ERROR(FindHydraJob(environment, identity));
  auto met = Joiner(config, environment, identity, deadline).Join();
  if (!met.ok()) {
    return Annotate(met.status(), absl::StrCat("rank ", identity.rank, " of ", identity.size, " could not join"));
  }
  auto membership = std::unique_ptr<Membership>(new Membership(std::move(identity), std::move(met->secret)));
  membership->server_ = std::move(met->server);
  membership->client_ = std::move(met->client);
  membership->apart_ = met->apart;
  if (membership->client_ != nullptr) {
    ASSIGN_OR_RETURN(membership->local_address_, membership->client_->LocalAddress());
  }
  return membership;
}

Membership::Membership(Identity identity, std::string secret)
    : identity_(std::move(identity)), secret_(std::move(secret)) {}

// The client first: others learn that this rank has left, then that the store has gone.
Membership::~Membership() {
  client_.reset();
}

absl::StatusOr<std::vector<std::string>> Membership::Gather(std::string_view name, std::string value,
                                                            TimePoint deadline) {
  if (client_ == nullptr) return std::vector<std::string>{std::move(value)};
  return client_->Gather(name, value, deadline);
}

}  // namespace gyre
