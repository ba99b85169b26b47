#include "transport/tcp/hub_attackers.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/socket.h"
#include "transport/tcp/hub_fixture.h"

namespace gyre::tcp {

using support::Mutator;

namespace {

constexpr int kLiar = 0;
constexpr size_t kCodeOffset = 7;         // in a challenge
constexpr size_t kVerdictCodeOffset = 4;  // u32
constexpr size_t kVerdictMacOffset = 8;

void SendSome(int fd, const std::string& bytes) {
  SendAll(fd, AsBytes(bytes), In(200)).IgnoreError();
}

// Ends the connection at once, with a reset.
void Reset(int fd) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

// Until the other side has ended the connection, or says nothing for a while.
void ReadToEnd(int fd, int ms) {
  std::string answer(16 << 10, '\0');
  while (ReceiveSome(fd, AsMutableBytes(answer), In(ms)).ok()) {
  }
}

HandshakeIdentity LiarOf(const Target& target) {
  return {target.job_id, target.epoch, kLiar, Role::kRank};
}

}  // namespace

absl::StatusOr<Recording> RecordFromHub(const Target& target, int number) {
  Recording recording = RecordInProcess(LiarOf(target), LiarOf(target), target.secret);  // for what follows the proof
  ASSIGN_OR_RETURN(const UniqueFd fd, ConnectTcp(target.job.hub(number).endpoint(), In(kPatience)));
  recording.hello.clear();
  recording.proof.clear();
  HandshakeClient client(LiarOf(target), target.secret, recording.hello);
  RETURN_IF_ERROR(SendAll(fd.get(), AsBytes(recording.hello), In(kPatience)));
  std::string challenge(kChallengeBytes, '\0');
  RETURN_IF_ERROR(ReceiveExactly(fd.get(), AsMutableBytes(challenge), In(kPatience)));
  client.Receive(AsBytes(challenge), recording.proof);
  RETURN_IF_ERROR(SendAll(fd.get(), AsBytes(recording.proof), In(kPatience)));
  recording.verdict.assign(kVerdictBytes, '\0');
  RETURN_IF_ERROR(ReceiveExactly(fd.get(), AsMutableBytes(recording.verdict), In(kPatience)));
  std::string nothing;
  client.Receive(AsBytes(recording.verdict), nothing);
  if (!client.done()) return absl::InternalError("the hub refused an honest rank");
  return recording;
}

// --- Stranger ---

Stranger::Stranger(const Target& target, uint64_t seed) : target_(target), random_(seed) {}

const Recording& Stranger::AnyRecording() {
  return target_.recordings[random_.Below(target_.recordings.size())];
}

void Stranger::AttackOnce() {
  const Endpoint endpoint = target_.job.hub(static_cast<int>(random_.Below(CampaignJob::kHubs))).endpoint();
  if (random_.OneIn(60)) return Flood(endpoint);
  auto fd = ConnectTcp(endpoint, In(1000));
  if (!fd.ok()) return;  // floods have their price for the attacker too
  ++connections_;
  switch (random_.Below(8)) {
    case 0: return Dribble(*std::move(fd));
    case 1: return StayAfterHello(*std::move(fd));
    case 2: AnswerChallenge(fd->get()); break;
    case 3: break;  // comes and goes
    default: SendSome(fd->get(), Burst(100)); break;
  }
  if (random_.OneIn(4)) shutdown(fd->get(), SHUT_WR);
  if (random_.OneIn(4)) Reset(fd->get());
  if (random_.OneIn(10)) Keep(*std::move(fd));
}

// Some messages as one piece of bytes.
std::string Stranger::Burst(uint64_t most) {
  std::string bytes;
  const uint64_t count = 1 + random_.Below(most);
  for (uint64_t i = 0; i < count; ++i) bytes += StrangersMessage(random_, AnyRecording());
  messages_ += static_cast<int64_t>(count);
  return bytes;
}

void Stranger::Keep(UniqueFd fd) {
  kept_.push_back(std::move(fd));
  if (kept_.size() > 60) kept_.pop_front();
}

void Stranger::Dribble(UniqueFd fd) {
  Keep(std::move(fd));
  const std::string message = Burst(1);
  for (size_t i = 0; i < kept_.size() && i < message.size(); ++i) SendSome(kept_[i].get(), message.substr(i, 1));
}

// A hello of this job, and no more: it counts for more than a stranger.
void Stranger::StayAfterHello(UniqueFd fd) {
  SendSome(fd.get(), AnyRecording().hello);
  ++messages_;
  Keep(std::move(fd));
}

// A hello that is right, then a guess in place of the proof.
void Stranger::AnswerChallenge(int fd) {
  SendSome(fd, AnyRecording().hello);
  ++messages_;
  std::string challenge(kChallengeBytes, '\0');
  if (ReceiveExactly(fd, AsMutableBytes(challenge), In(1000)).ok()) SendSome(fd, Burst(10));
}

void Stranger::Flood(const Endpoint& endpoint) {
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 400; ++i) {
    auto fd = ConnectTcp(endpoint, In(1000));
    if (!fd.ok()) break;
    ++connections_;
    if (random_.OneIn(2)) SendSome(fd->get(), Burst(1));
    Reset(fd->get());
    flood.push_back(*std::move(fd));
  }
}

// --- Impostor ---

std::string_view Impostor::Name(Kind kind) {
  constexpr std::string_view kNames[] = {"replay",           "replay in one", "other secret",  "other epoch",
                                         "other job",        "other version", "flipped proof", "changed hello",
                                         "other connection", "reflection"};
  static_assert(std::size(kNames) == kKinds);
  return kNames[kind];
}

// The other side's challenge; an error if it had none.
absl::StatusOr<std::string> Impostor::Challenge(int fd, const std::string& hello) {
  RETURN_IF_ERROR(SendAll(fd, AsBytes(hello), In(kPatience)));
  std::string challenge(kChallengeBytes, '\0');
  RETURN_IF_ERROR(ReceiveExactly(fd, AsMutableBytes(challenge), In(kPatience)));
  return challenge;
}

// After the hello: the end of the connection, perhaps with a refusal before it, and nothing else. Only to an impostor
// that `holds_secret` is the refusal proved.
absl::Status Impostor::ExpectRefusal(int fd, std::string_view first, bool holds_secret) {
  std::string answer(first);
  std::string more(256, '\0');
  for (;;) {
    const auto received = ReceiveSome(fd, AsMutableBytes(more), In(kPatience));
    if (absl::IsDeadlineExceeded(received.status())) return absl::InternalError("was neither let in nor refused");
    if (!received.ok()) break;
    answer += more.substr(0, *received);
  }
  if (answer.size() < kChallengeBytes || answer[kCodeOffset] != 0) return absl::OkStatus();
  const std::string verdict = answer.substr(kChallengeBytes);
  if (verdict.size() > kVerdictBytes) return absl::InternalError("more came than a refusal");
  // A connection that ends with bytes unread may lose the refusal on its way.
  if (verdict.size() < kVerdictBytes) return absl::OkStatus();
  if (verdict[kVerdictCodeOffset] == 0) return absl::InternalError("was let in");
  const bool silent = verdict.substr(kVerdictMacOffset) == std::string(32, '\0');
  return silent || holds_secret ? absl::OkStatus() : absl::InternalError("a refusal gives a MAC away");
}

absl::Status Impostor::TryOnce() {
  const auto kind = static_cast<Kind>(random_.Below(kKinds));
  const int number = static_cast<int>(random_.Below(CampaignJob::kHubs));
  ++tries_[kind];
  ASSIGN_OR_RETURN(const UniqueFd fd, ConnectTcp(target_.job.hub(number).endpoint(), In(kPatience)));
  const Recording& recorded = target_.recordings[random_.Below(target_.recordings.size())];
  const std::string then = random_.OneIn(2) ? recorded.purpose + recorded.frames : "";
  absl::Status refused;
  if (kind == kReplayInOne) {
    SendSome(fd.get(), recorded.hello + recorded.proof + then);
    refused = ExpectRefusal(fd.get(), "", /*holds_secret=*/false);
  } else {
    std::string hello = recorded.hello;
    HandshakeIdentity self = LiarOf(target_);
    std::string secret = target_.secret;
    if (kind == kOtherSecret) secret = random_.MutatedInPlace(secret) + "x";
    if (kind == kOtherEpoch) self.epoch += 1 + random_.Below(100);
    if (kind == kOtherJob) self.job_id += "x";
    std::string own_hello;
    HandshakeClient client(self, secret, own_hello);
    if (kind != kReplay && kind != kReflection) hello = own_hello;
    if (kind == kOtherVersion) hello[4] ^= static_cast<char>(1 + random_.Below(255));
    if (kind == kChangedHello) hello[random_.OneIn(2) ? 16 : 56 + random_.Below(32)] ^= 1;  // the rank, the nonce
    ASSIGN_OR_RETURN(const std::string challenge, Challenge(fd.get(), hello));
    std::string proof = recorded.proof;
    if (kind == kReflection) proof = recorded.proof.substr(0, 4) + recorded.verdict.substr(kVerdictMacOffset);
    if (kind == kOtherConnection) {
      ASSIGN_OR_RETURN(const UniqueFd other, ConnectTcp(target_.job.hub(number).endpoint(), In(kPatience)));
      ASSIGN_OR_RETURN(const std::string others, Challenge(other.get(), hello));
      proof.clear();
      client.Receive(AsBytes(others), proof);
    } else if (kind != kReplay && kind != kReflection) {
      proof.clear();
      client.Receive(AsBytes(challenge), proof);
      if (kind == kFlippedProof) proof[4 + random_.Below(32)] ^= static_cast<char>(1 << random_.Below(8));
    }
    SendSome(fd.get(), proof + then);
    refused = ExpectRefusal(fd.get(), challenge, /*holds_secret=*/kind == kOtherEpoch);
  }
  Reset(fd.get());
  return Annotate(refused, Name(kind));
}

// --- Liars ---

void Liars::LieOnce() {
  const int number = static_cast<int>(random_.Below(CampaignJob::kHubs));
  auto fd = ConnectTcp(target_.job.hub(number).endpoint(), In(kPatience));
  if (!fd.ok()) return;
  LieOptions options{.epoch = target_.epoch,
                     .teller = static_cast<int>(random_.Below(static_cast<uint64_t>(liars_))),
                     .hearer = target_.job.rank(number),
                     .liars = liars_,
                     .may_be_accused = [this](int rank) { return !target_.job.IsHonest(rank); }};
  HandshakeIdentity self{target_.job_id, target_.epoch, options.teller, Role::kRank};
  // One that has no business with this hub, at times.
  if (random_.OneIn(30)) self.rank = static_cast<int>(random_.Number() | 0x1000);
  if (random_.OneIn(30)) self = {target_.job_id, target_.epoch, -1, random_.OneIn(2) ? Role::kStore : Role::kLauncher};
  if (!AuthenticateTo(fd->get(), self, target_.secret, In(kPatience)).ok()) return;
  ++connections_;
  const Lies lies = TellLies(random_, options);
  frames_ += lies.frames;
  SendSome(fd->get(), lies.bytes);
  if (random_.OneIn(3)) shutdown(fd->get(), SHUT_WR);
  if (random_.OneIn(2)) ReadToEnd(fd->get(), 5);
  if (random_.OneIn(4)) Reset(fd->get());
  if (random_.OneIn(3)) kept_.push_back(*std::move(fd));
  if (kept_.size() > 60) kept_.pop_front();
}

// --- Decoys ---

bool ReceiveAsDecoy(int listener, const HandshakeIdentity& self, const Target& target, Mutator& random,
                    int64_t& frames) {
  pollfd waits{listener, POLLIN, 0};
  if (poll(&waits, 1, 0) != 1) return false;
  const UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd) return false;
  HandshakeServer server(self, target.secret);
  const uint64_t wrong = random.Below(8);  // which message, if it is one of the server's two
  for (uint64_t message = 0; message < 2 && server.wanted() > 0; ++message) {
    std::string input(server.wanted(), '\0'), output;
    if (!ReceiveExactly(fd.get(), AsMutableBytes(input), In(1000)).ok()) return true;
    server.Receive(AsBytes(input), output);
    if (wrong == message) output = random.OneIn(2) ? random.Mutated(output) : random.RandomBytes(output.size());
    frames += 1;
    SendSome(fd.get(), output);
  }
  if (!server.done()) return true;
  std::string purpose(kPurposeFrameBytes, '\0');
  if (random.OneIn(2)) ReceiveExactly(fd.get(), AsMutableBytes(purpose), In(1000)).IgnoreError();
  const LieOptions options{
      .epoch = target.epoch, .teller = self.rank, .hearer = server.peer().rank, .may_be_accused = [&](int rank) {
        return !target.job.IsHonest(rank);
      }};
  const Lies lies = TellControlLies(random, options, 0);
  frames += lies.frames;
  SendSome(fd.get(), lies.bytes);
  ReadToEnd(fd.get(), 5);
  return true;
}

}  // namespace gyre::tcp
