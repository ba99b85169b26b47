#include "net/handshake.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "net/socket.h"
#include "support/deadline.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::In;
using support::IsOk;
using support::MatchesStatus;

const HandshakeIdentity kClient{"job", 3, 2, Role::kRank};
const HandshakeIdentity kServer{"job", 3, -1, Role::kStore};
constexpr char kSecret[] = "0123456789abcdef0123456789abcdef";

// The messages of one handshake, and how both sides ended.
struct Transcript {
  std::vector<std::string> from_client, from_server;
  absl::Status client, server;
  bool client_done = false, server_done = false;
};

// `meddle` may change a message on its way; index 0 to 3 in order.
Transcript Converse(
    HandshakeClient& client, HandshakeServer& server, std::string hello,
    const std::function<void(int index, std::string& message)>& meddle = [](int, std::string&) {}) {
  Transcript transcript;
  std::string to_server = std::move(hello);
  for (int index = 0; index < 4; index += 2) {
    transcript.from_client.push_back(to_server);
    meddle(index, to_server);
    if (to_server.size() != server.wanted() || server.wanted() == 0) break;
    std::string to_client;
    server.Receive(AsBytes(to_server), to_client);
    transcript.from_server.push_back(to_client);
    meddle(index + 1, to_client);
    to_server.clear();
    if (to_client.size() != client.wanted() || client.wanted() == 0) break;
    client.Receive(AsBytes(to_client), to_server);
  }
  transcript.client = client.status();
  transcript.server = server.status();
  transcript.client_done = client.done();
  transcript.server_done = server.done();
  return transcript;
}

Transcript Converse(
    const HandshakeIdentity& client_identity, const std::string& client_secret,
    const HandshakeIdentity& server_identity, const std::string& server_secret,
    const std::function<void(int, std::string&)>& meddle = [](int, std::string&) {}) {
  std::string hello;
  HandshakeClient client(client_identity, client_secret, hello);
  HandshakeServer server(server_identity, server_secret);
  return Converse(client, server, hello, meddle);
}

TEST(Handshake, BothSidesLearnWhoTheOtherIs) {
  std::string hello;
  HandshakeClient client(kClient, kSecret, hello);
  HandshakeServer server(kServer, kSecret);
  const Transcript transcript = Converse(client, server, hello);
  ASSERT_TRUE(transcript.client_done) << transcript.client;
  ASSERT_TRUE(transcript.server_done) << transcript.server;
  EXPECT_EQ(client.peer(), kServer);
  EXPECT_EQ(server.peer(), kClient);
  EXPECT_EQ(transcript.from_client[0].size(), kHelloBytes);
  EXPECT_EQ(transcript.from_server[0].size(), kChallengeBytes);
  EXPECT_EQ(transcript.from_client[1].size(), kProofBytes);
  EXPECT_EQ(transcript.from_server[1].size(), kVerdictBytes);
}

TEST(Handshake, TheSecretNeverTravels) {
  const Transcript transcript = Converse(kClient, kSecret, kServer, kSecret);
  for (const auto& messages : {transcript.from_client, transcript.from_server}) {
    for (const std::string& message : messages) EXPECT_EQ(message.find("0123456789"), std::string::npos);
  }
}

TEST(Handshake, AnotherSecretIsRefusedOnBothSides) {
  const std::string other = "another secret!!";
  const Transcript transcript = Converse(kClient, other, kServer, kSecret);
  EXPECT_THAT(transcript.client, MatchesStatus(StatusCode::kUnauthenticated, "GYRE_SECRET_FILE"));
  EXPECT_THAT(transcript.server, MatchesStatus(StatusCode::kUnauthenticated, "rank 2 holds another secret"));
  for (const absl::Status& status : {transcript.client, transcript.server}) {
    EXPECT_EQ(status.message().find(other), absl::string_view::npos);
    EXPECT_EQ(status.message().find(kSecret), absl::string_view::npos);
  }
  // What the server sends to a stranger has no proof in it.
  EXPECT_EQ(transcript.from_server[1].substr(8), std::string(32, '\0'));
}

TEST(Handshake, AServerWithoutTheSecretIsNotBelieved) {
  // It accepts everybody, and says so.
  const Transcript transcript =
      Converse(kClient, kSecret, kServer, "another secret!!", [](int index, std::string& message) {
        if (index == 3) message.replace(4, 4, std::string(4, '\0'));
      });
  EXPECT_THAT(transcript.client, MatchesStatus(StatusCode::kUnauthenticated, "the store"));
}

TEST(Handshake, OtherJobsAndVersionsAreRefused) {
  HandshakeIdentity client = kClient;
  client.job_id = "other job";
  Transcript transcript = Converse(client, kSecret, kServer, kSecret);
  EXPECT_THAT(transcript.client, MatchesStatus(StatusCode::kUnauthenticated, "another job"));
  EXPECT_THAT(transcript.server, MatchesStatus(StatusCode::kUnauthenticated, "another job"));

  transcript = Converse(kClient, kSecret, kServer, kSecret, [](int index, std::string& message) {
    if (index == 0) message[4] = 9;
  });
  EXPECT_THAT(transcript.client, MatchesStatus(StatusCode::kFailedPrecondition, "version"));
  EXPECT_THAT(transcript.server, MatchesStatus(StatusCode::kFailedPrecondition, "version"));
}

TEST(Handshake, WhoIsOfAnOlderEpochIsRefusedWhicheverSideItIs) {
  HandshakeIdentity older = kClient;
  older.epoch = 2;
  Transcript transcript = Converse(older, kSecret, kServer, kSecret);
  EXPECT_FALSE(transcript.client_done || transcript.server_done);
  EXPECT_THAT(transcript.client, MatchesStatus(StatusCode::kAborted,
                                               "this job is in epoch 3 (the store); this process belongs to epoch 2: "
                                               "it was left over from before a restart"));
  EXPECT_THAT(transcript.server, MatchesStatus(StatusCode::kCancelled,
                                               "this job is in epoch 3; rank 2 belongs to epoch 2: it was left over"));

  HandshakeIdentity newer = kClient;
  newer.epoch = 4;
  transcript = Converse(newer, kSecret, kServer, kSecret);
  EXPECT_FALSE(transcript.client_done || transcript.server_done);
  EXPECT_THAT(
      transcript.client,
      MatchesStatus(StatusCode::kCancelled, "this job is in epoch 4; the store belongs to epoch 3: it was left over"));
  EXPECT_THAT(transcript.server,
              MatchesStatus(StatusCode::kAborted, "this job is in epoch 4 (rank 2); this process belongs to epoch 3"));
}

// An epoch counts only from who proves to hold the secret: nobody makes a rank give up, or be reported, by a claim.
TEST(Handshake, AStrangersEpochIsNotBelieved) {
  HandshakeIdentity other = kClient;
  for (const uint64_t epoch : {2, 4}) {
    other.epoch = epoch;
    const Transcript stranger = Converse(other, "another secret!!", kServer, kSecret);
    EXPECT_THAT(stranger.server, MatchesStatus(StatusCode::kUnauthenticated, "rank 2 holds another secret"));
    EXPECT_EQ(stranger.from_server[1].substr(8), std::string(32, '\0'));
    const Transcript impostor = Converse(kClient, kSecret, {"job", epoch, -1, Role::kStore}, "another secret!!",
                                         [](int index, std::string& message) {
                                           if (index == 3) message[4] = 2;  // says that it is because of the epoch
                                         });
    EXPECT_THAT(impostor.client, MatchesStatus(StatusCode::kUnauthenticated, "the store holds another secret"));
  }
  // Nor may the code of the verdict be changed on its way: the MAC says which epochs there are.
  other.epoch = 2;
  for (const char code : {0, 1, 3, 4}) {
    const Transcript changed = Converse(other, kSecret, kServer, kSecret, [code](int index, std::string& message) {
      if (index == 3) message[4] = code;
    });
    EXPECT_FALSE(changed.client_done);
    EXPECT_EQ(changed.client.code(), StatusCode::kUnauthenticated);
  }
}

TEST(Handshake, EveryFlippedBitEndsIt) {
  constexpr size_t kSizes[] = {kHelloBytes, kChallengeBytes, kProofBytes, kVerdictBytes};
  // Bits that mean nothing: reserved fields.
  const auto reserved = [](int index, size_t byte) {
    return (index == 0 && (byte == 7 || (byte >= 20 && byte < 24))) || (index == 1 && byte >= 20 && byte < 24);
  };
  for (int target = 0; target < 4; ++target) {
    for (size_t bit = 0; bit < kSizes[target] * 8; ++bit) {
      if (reserved(target, bit / 8)) continue;
      const Transcript transcript = Converse(kClient, kSecret, kServer, kSecret, [&](int index, std::string& message) {
        if (index == target) message[bit / 8] = static_cast<char>(message[bit / 8] ^ (1 << (bit % 8)));
      });
      EXPECT_FALSE(transcript.client_done) << "message " << target << " bit " << bit;
      // Of the last message the server no longer hears.
      EXPECT_TRUE(target == 3 || !transcript.server_done) << "message " << target << " bit " << bit;
    }
  }
}

TEST(Handshake, ARecordingIsOfNoUse) {
  const Transcript recorded = Converse(kClient, kSecret, kServer, kSecret);
  ASSERT_TRUE(recorded.client_done);
  HandshakeServer server(kServer, kSecret);
  std::string output;
  server.Receive(AsBytes(recorded.from_client[0]), output);
  server.Receive(AsBytes(recorded.from_client[1]), output);
  EXPECT_THAT(server.status(), MatchesStatus(StatusCode::kUnauthenticated, "another secret"));

  std::string hello;
  HandshakeClient client(kClient, kSecret, hello);
  client.Receive(AsBytes(recorded.from_server[0]), output);
  client.Receive(AsBytes(recorded.from_server[1]), output);
  EXPECT_THAT(client.status(), MatchesStatus(StatusCode::kUnauthenticated, ""));
}

// An attacker without the secret stands between, or answers a client with the client's own messages.
TEST(Handshake, ReflectionIsOfNoUse) {
  const HandshakeIdentity rank{"job", 3, 2, Role::kRank};
  std::string hello;
  HandshakeClient victim(rank, kSecret, hello);
  // Its own hello, in the form of a challenge: same nonce, same identity.
  std::string challenge = hello.substr(0, 24) + hello.substr(56);
  std::string proof;
  victim.Receive(AsBytes(challenge), proof);
  ASSERT_EQ(proof.size(), kProofBytes);
  // Its own proof, in the form of a verdict.
  std::string verdict = proof.substr(0, 4) + std::string(4, '\0') + proof.substr(4);
  std::string ignored;
  victim.Receive(AsBytes(verdict), ignored);
  EXPECT_THAT(victim.status(), MatchesStatus(StatusCode::kUnauthenticated, ""));

  // A rank that both serves and connects: what its client side says in one handshake does not open its server side in
  // another.
  std::string other_hello;
  HandshakeClient other(rank, kSecret, other_hello);
  HandshakeServer server(rank, kSecret);
  std::string server_challenge;
  server.Receive(AsBytes(other_hello), server_challenge);
  std::string answer;
  HandshakeServer oracle(rank, kSecret);
  oracle.Receive(AsBytes(other_hello), answer);
  std::string guess = proof;  // a proof that was made for other nonces
  server.Receive(AsBytes(guess), ignored);
  EXPECT_FALSE(server.done());
}

TEST(Handshake, AForeignServiceIsToldApart) {
  HandshakeServer server(kServer, kSecret);
  std::string output;
  server.Receive(AsBytes(std::string("GET / HTTP/1.1\r\n").append(kHelloBytes - 16, ' ')), output);
  EXPECT_THAT(server.status(), MatchesStatus(StatusCode::kUnauthenticated, "does not speak Gyre"));
  EXPECT_EQ(output, "");  // nothing is said to it
}

struct SocketPair {
  SocketPair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    a.Reset(fds[0]);
    b.Reset(fds[1]);
  }
  UniqueFd a, b;
};

// The server's side, to have somebody to talk to.
absl::StatusOr<HandshakeIdentity> AuthenticateFrom(int fd) {
  HandshakeServer server(kServer, kSecret);
  std::string input, output;
  while (!server.done()) {
    input.resize(server.wanted());
    RETURN_IF_ERROR(ReceiveExactly(fd, AsMutableBytes(input), In(5000)));
    server.Receive(AsBytes(input), output);
    RETURN_IF_ERROR(SendAll(fd, AsBytes(std::exchange(output, "")), In(5000)));
    RETURN_IF_ERROR(server.status());
  }
  return server.peer();
}

TEST(HandshakeBlocking, ConsumesNothingBeyondItself) {
  SocketPair pair;
  std::thread client([&] {
    EXPECT_THAT(AuthenticateTo(pair.a.get(), kClient, kSecret, In(5000)), IsOk());
    EXPECT_THAT(SendAll(pair.a.get(), AsBytes("after"), In(5000)), IsOk());
  });
  const auto peer = AuthenticateFrom(pair.b.get());
  EXPECT_THAT(SendAll(pair.b.get(), AsBytes("reply"), In(5000)), IsOk());
  client.join();
  ASSERT_THAT(peer, IsOk());
  EXPECT_EQ(*peer, kClient);
  std::string bytes(5, '\0');
  EXPECT_THAT(ReceiveExactly(pair.b.get(), AsMutableBytes(bytes), In(1000)), IsOk());
  EXPECT_EQ(bytes, "after");
  EXPECT_THAT(ReceiveExactly(pair.a.get(), AsMutableBytes(bytes), In(1000)), IsOk());
  EXPECT_EQ(bytes, "reply");
}

TEST(HandshakeBlocking, EndsAtTheDeadlineAndWithThePeer) {
  SocketPair silent;
  EXPECT_THAT(AuthenticateTo(silent.a.get(), kClient, kSecret, In(50)),
              MatchesStatus(StatusCode::kDeadlineExceeded, "handshake"));
  SocketPair closed;
  closed.b.Reset();
  EXPECT_THAT(AuthenticateTo(closed.a.get(), kClient, kSecret, In(1000)),
              MatchesStatus(StatusCode::kUnavailable, "handshake"));
  SocketPair cut;
  ASSERT_THAT(SendAll(cut.b.get(), AsBytes("half a challenge"), In(1000)), IsOk());
  cut.b.Reset();
  EXPECT_THAT(AuthenticateTo(cut.a.get(), kClient, kSecret, In(1000)),
              MatchesStatus(StatusCode::kUnavailable, "handshake"));
}

TEST(HandshakeBlocking, BothSidesSayWhy) {
  SocketPair pair;
  std::thread client([&] {
    EXPECT_THAT(AuthenticateTo(pair.a.get(), kClient, "another secret!!", In(5000)),
                MatchesStatus(StatusCode::kUnauthenticated, "another secret than rank 2"));
  });
  EXPECT_THAT(AuthenticateFrom(pair.b.get()),
              MatchesStatus(StatusCode::kUnauthenticated, "rank 2 holds another secret"));
  client.join();
}

}  // namespace
}  // namespace gyre
