// Those who attack the hubs of a campaign's job: strangers, who lack the secret or the moment; and ranks that lie.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/fd.h"
#include "support/mutator.h"
#include "transport/tcp/campaign_job.h"
#include "transport/tcp/hub_garbage.h"

namespace gyre::tcp {

// Whom the attackers attack, and what they know of it.
struct Target {
  CampaignJob& job;
  std::string job_id;
  uint64_t epoch;
  std::string secret;
  std::vector<Recording> recordings;  // of handshakes with the job's hubs, over their sockets
};

// Lets a rank in that the job waits for, and records what was said. The connection ends before its purpose.
absl::StatusOr<Recording> RecordFromHub(const Target& target, int number);

// Random bytes, mutated and recorded messages, half-open connections, floods. Not thread-safe.
class Stranger {
 public:
  Stranger(const Target& target, uint64_t seed);

  void AttackOnce();
  int64_t messages() const { return messages_; }
  int64_t connections() const { return connections_; }

 private:
  const Recording& AnyRecording();
  std::string Burst(uint64_t most);
  void Dribble(UniqueFd fd);
  void AnswerChallenge(int fd);
  void StayAfterHello(UniqueFd fd);
  void Flood(const Endpoint& endpoint);
  void Keep(UniqueFd fd);

  const Target& target_;
  support::Mutator random_;
  std::deque<UniqueFd> kept_;  // silent ones, and those that send a byte at a time
  int64_t messages_ = 0, connections_ = 0;
};

// One after the other, handshakes that must be refused. Not thread-safe.
class Impostor {
 public:
  enum Kind {
    kReplay,       // a recorded proof under its hello
    kReplayInOne,  // the whole recording, not waiting for answers
    kOtherSecret,
    kOtherEpoch,
    kOtherJob,
    kOtherVersion,
    kFlippedProof,     // right but for a bit
    kChangedHello,     // a right proof, but the hello was changed on the way
    kOtherConnection,  // a right proof, for another connection's challenge
    kReflection,       // a hub's own proof
    kKinds,
  };
  static std::string_view Name(Kind kind);

  Impostor(const Target& target, uint64_t seed) : target_(target), random_(seed) {}

  // One try, of a kind drawn, at a hub drawn; OK if it was refused.
  absl::Status TryOnce();
  const std::array<int64_t, kKinds>& tries() const { return tries_; }

 private:
  absl::StatusOr<std::string> Challenge(int fd, const std::string& hello);
  absl::Status ExpectRefusal(int fd, std::string_view first, bool holds_secret);

  const Target& target_;
  support::Mutator random_;
  std::array<int64_t, kKinds> tries_{};
};

// Ranks of the job that prove themselves and then send what they like. Not thread-safe.
class Liars {
 public:
  Liars(const Target& target, int liars, uint64_t seed) : target_(target), liars_(liars), random_(seed) {}

  // One connection of some liar to some hub.
  void LieOnce();
  int64_t frames() const { return frames_; }
  int64_t connections() const { return connections_; }

 private:
  const Target& target_;
  const int liars_;
  support::Mutator random_;
  std::deque<UniqueFd> kept_;
  int64_t frames_ = 0, connections_ = 0;
};

// A listener in the place of a rank that the job's hubs connect to: answers one connection, in the handshake's way or
// not, and lies. `self` is whom it says it is. False: nobody came before the deadline.
bool ReceiveAsDecoy(int listener, const HandshakeIdentity& self, const Target& target, support::Mutator& random,
                    int64_t& frames);

}  // namespace gyre::tcp
