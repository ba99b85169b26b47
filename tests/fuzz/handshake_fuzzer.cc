// Both sides of the handshake, with their messages changed on the way: it succeeds for exactly those who got what was
// sent, and never for a stranger.
#include <array>
#include <optional>

#include "fuzzers.h"
#include "net/handshake.h"

namespace gyre::fuzz {

namespace {

// Bytes that no field uses; whatever they hold is ignored.
bool IsPadding(int message, size_t at) {
  if (message == 0) return at == 7 || (at >= 20 && at < 24);  // hello
  if (message == 1) return at >= 20 && at < 24;               // challenge
  return false;
}

struct Transcript {
  std::array<std::string, 4> sent, got;

  // Whether messages 0 to `last` came as they were sent.
  bool Whole(int last) const {
    for (int i = 0; i <= last; ++i) {
      const auto message = static_cast<size_t>(i);
      if (sent[message].size() != got[message].size()) return false;
      for (size_t at = 0; at < sent[message].size(); ++at) {
        if (sent[message][at] != got[message][at] && !IsPadding(i, at)) return false;
      }
    }
    return true;
  }
};

class Conversation {
 public:
  Conversation(Mutator& random, const HandshakeIdentity& client, const std::string& client_secret,
               const HandshakeIdentity& server, const std::string& server_secret)
      : random_(random),
        output_(),
        client_(client, client_secret, output_),
        server_(server, server_secret),
        changed_(random.OneIn(4) ? -1 : static_cast<int>(random.Below(4))) {}

  // Empty, or what is wrong.
  std::string Run() {
    for (int message = 0; message < 4; ++message) {
      Handshake& receiver = message % 2 == 0 ? static_cast<Handshake&>(server_) : client_;
      const auto number = static_cast<size_t>(message);
      transcript_.sent[number] = std::exchange(output_, {});
      if (transcript_.sent[number].empty()) break;  // the other side has given up
      if (receiver.wanted() == 0) return receiver.done() ? "more came than is wanted" : "";
      transcript_.got[number] = OnTheWay(message, receiver.wanted());
      receiver.Receive(AsBytes(transcript_.got[number]), output_);
      if (output_.size() > kMaxHandshakeMessageBytes) return "said more than a message";
    }
    return "";
  }

  const Handshake& client() const { return client_; }
  const Handshake& server() const { return server_; }
  const Transcript& transcript() const { return transcript_; }

 private:
  std::string OnTheWay(int message, size_t wanted) {
    std::string bytes = transcript_.sent[static_cast<size_t>(message)];
    if (message == changed_) bytes = random_.OneIn(4) ? random_.RandomBytes(wanted) : random_.MutatedInPlace(bytes);
    bytes.resize(wanted);
    return bytes;
  }

  Mutator& random_;
  std::string output_;
  HandshakeClient client_;
  HandshakeServer server_;
  const int changed_;
  Transcript transcript_;
};

std::string CheckSide(const Handshake& side, bool must_succeed, const HandshakeIdentity& other) {
  if (side.done() != must_succeed) return must_succeed ? "an honest side was refused" : "a stranger was let in";
  if (side.done() && side.peer() != other) return "the peer is taken for another";
  if (!side.done() && side.status().ok() && side.wanted() == 0) return "neither done nor failed";
  return "";
}

}  // namespace

std::string FuzzHandshake(Mutator& random) {
  const std::string secret = random.RandomBytes(32);
  const uint64_t epoch = random.Below(3);
  const HandshakeIdentity server{"job", epoch, static_cast<int>(random.Below(4)), Role::kRank};
  HandshakeIdentity client{"job", epoch, static_cast<int>(random.Number()), static_cast<Role>(1 + random.Below(3))};
  std::string client_secret = secret;
  bool honest = false, other_epoch = false;
  switch (random.Below(8)) {
    case 0:
      client.epoch += 1 + random.Below(3);
      other_epoch = true;
      break;
    case 1: client.job_id = random.Mutated("job") + "x"; break;
    case 2: client_secret = random.MutatedInPlace(secret) + "x"; break;
    default: honest = true;
  }
  Conversation conversation(random, client, client_secret, server, secret);
  if (std::string wrong = conversation.Run(); !wrong.empty()) return wrong;
  const Transcript& transcript = conversation.transcript();
  const bool proved = honest && transcript.Whole(2);
  if (std::string wrong = CheckSide(conversation.server(), proved, client); !wrong.empty()) return "server: " + wrong;
  const bool answered = proved && transcript.Whole(3);
  if (std::string wrong = CheckSide(conversation.client(), answered, server); !wrong.empty()) return "client: " + wrong;
  // A refusal gives nothing away to test guesses of the secret on, but to who has proved to hold it.
  const bool holds_secret = other_epoch && transcript.Whole(2);
  if (!proved && !holds_secret && transcript.sent[3].size() == kVerdictBytes &&
      transcript.sent[3].substr(8) != std::string(32, '\0')) {
    return "a refusal carries a MAC";
  }
  return "";
}

}  // namespace gyre::fuzz
