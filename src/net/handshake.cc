#include "net/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/socket.h"

namespace gyre {

namespace {

constexpr uint32_t kMagic = 0x48525947;  // "GYRH"
constexpr uint16_t kVersion = 2;
constexpr size_t kMacBytes = 32;

// Of the challenge: kGoOn, kOtherJob, kOtherVersion; of the verdict: kGoOn, kOtherEpoch, kRefused.
enum Code : uint8_t { kGoOn = 0, kOtherJob = 1, kOtherEpoch = 2, kOtherVersion = 3, kRefused = 4 };

struct Mac {
  std::array<std::byte, kMacBytes> bytes{};
  bool made = false;  // false: OpenSSL failed; equal to nothing
};

std::string_view Text(const std::array<std::byte, 32>& bytes) {
  return AsText(Bytes(bytes));
}

void WriteIdentity(WireWriter& writer, const HandshakeIdentity& identity) {
  writer.U64(identity.epoch);
  writer.U32(static_cast<uint32_t>(identity.rank));
  writer.U8(static_cast<uint8_t>(identity.role));
}

// What a proof covers: everything both sides said. The label tells the two directions apart.
Mac MakeMac(std::string_view label, const std::string& secret, const HandshakeIdentity& client,
            const HandshakeIdentity& server, const HandshakeNonce& client_nonce, const HandshakeNonce& server_nonce) {
  std::string message;
  WireWriter writer(message);
  writer.Text(label);
  writer.U16(kVersion);
  writer.Text(client.job_id);
  WriteIdentity(writer, client);
  WriteIdentity(writer, server);
  writer.Raw(Text(client_nonce));
  writer.Raw(Text(server_nonce));
  Mac mac;
  size_t length = 0;
  mac.made = EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, secret.data(), secret.size(),
                       reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                       reinterpret_cast<unsigned char*>(mac.bytes.data()), mac.bytes.size(), &length) != nullptr &&
             length == kMacBytes;
  return mac;
}

bool Matches(const Mac& mac, std::string_view given) {
  return mac.made && given.size() == kMacBytes && CRYPTO_memcmp(mac.bytes.data(), given.data(), kMacBytes) == 0;
}

// Job ids have any length; in the hello they are this digest, which is no secret.
std::string JobDigest(std::string_view job_id) {
  std::string digest(kMacBytes, '\0');
  size_t length = 0;
  if (EVP_Q_digest(nullptr, "SHA256", nullptr, job_id.data(), job_id.size(),
                   reinterpret_cast<unsigned char*>(digest.data()), &length) != 1) {
    digest.clear();  // equal to none
  }
  return digest;
}

bool IsRole(uint8_t role) {
  return role >= 1 && role <= static_cast<uint8_t>(Role::kServer);
}

constexpr std::string_view kClientLabel = "gyre handshake: client";
constexpr std::string_view kServerLabel = "gyre handshake: server";

absl::Status NotGyre() {
  return absl::UnauthenticatedError("the other side does not speak Gyre's handshake");
}

absl::Status RefusalStatus(uint8_t code, const HandshakeIdentity& self, const HandshakeIdentity& peer) {
  switch (code) {
    case kOtherJob:
      return absl::UnauthenticatedError(
          absl::StrCat(Describe(peer), " belongs to another job than \"", self.job_id, "\" (GYRE_JOB_ID)"));
    case kOtherVersion:
      return absl::FailedPreconditionError(absl::StrCat(
          Describe(peer), " speaks another version of Gyre's protocol; try: one build of Gyre everywhere"));
    default: return NotGyre();
  }
}

absl::Status OtherEpoch(const HandshakeIdentity& self, const HandshakeIdentity& peer) {
  constexpr char kLeftOver[] = ": it was left over from before a restart";
  if (self.epoch < peer.epoch) {
    return absl::AbortedError(absl::StrCat("this job is in epoch ", peer.epoch, " (", Describe(peer),
                                           "); this process belongs to epoch ", self.epoch, kLeftOver));
  }
  return absl::CancelledError(absl::StrCat("this job is in epoch ", self.epoch, "; ", Describe(peer),
                                           " belongs to epoch ", peer.epoch, kLeftOver));
}

absl::Status WrongSecret(const HandshakeIdentity& self, const HandshakeIdentity& peer) {
  return absl::UnauthenticatedError(
      absl::StrCat(Describe(peer), " holds another secret than ", Describe(self),
                   "; try: to start both from one launcher, or the same GYRE_SECRET_FILE for both"));
}

}  // namespace

std::string Describe(const HandshakeIdentity& identity) {
  switch (identity.role) {
    case Role::kRank: return absl::StrCat("rank ", identity.rank);
    case Role::kStore: return "the store";
    case Role::kLauncher: return "the launcher";
    case Role::kServer: return absl::StrCat("server ", identity.rank);
  }
  return "a stranger";
}

Handshake::Handshake(HandshakeIdentity self, std::string secret, size_t wanted)
    : self_(std::move(self)), secret_(std::move(secret)), wanted_(wanted) {
  peer_.job_id = self_.job_id;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(own_nonce_.data()), static_cast<int>(own_nonce_.size())) != 1) {
    Fail(absl::InternalError("no random numbers are to be had"));
  }
}

void Handshake::Fail(absl::Status status) {
  status_ = std::move(status);
  wanted_ = 0;
}

// --- Server ---

HandshakeServer::HandshakeServer(HandshakeIdentity self, std::string secret)
    : Handshake(std::move(self), std::move(secret), kHelloBytes) {}

void HandshakeServer::Receive(Bytes input, std::string& output) {
  if (challenged_) {
    ReceiveProof(input, output);
  } else {
    ReceiveHello(input, output);
  }
}

void HandshakeServer::ReceiveHello(Bytes input, std::string& output) {
  WireReader reader(input);
  if (reader.U32() != kMagic) return Fail(NotGyre());
  const uint16_t version = reader.U16();
  const uint8_t role = reader.U8();
  reader.U8();
  peer_.epoch = reader.U64();
  peer_.rank = static_cast<int>(reader.U32());
  reader.U32();
  const std::string_view job = reader.Raw(kMacBytes);
  const std::string_view nonce = reader.Raw(peer_nonce_.size());
  if (!reader.AtEnd() || !IsRole(role)) return Fail(NotGyre());
  peer_.role = static_cast<Role>(role);
  std::ranges::copy(AsBytes(nonce), peer_nonce_.begin());
  greeted_ = true;

  const Code code = version != kVersion ? kOtherVersion : job != JobDigest(self_.job_id) ? kOtherJob : kGoOn;
  WireWriter writer(output);
  writer.U32(kMagic);
  writer.U16(kVersion);
  writer.U8(static_cast<uint8_t>(self_.role));
  writer.U8(code);
  writer.U64(self_.epoch);
  writer.U32(static_cast<uint32_t>(self_.rank));
  writer.U32(0);
  writer.Raw(Text(own_nonce_));
  if (code != kGoOn) return Fail(RefusalStatus(code, self_, peer_));
  challenged_ = true;
  wanted_ = kProofBytes;
}

void HandshakeServer::ReceiveProof(Bytes input, std::string& output) {
  WireReader reader(input);
  const bool gyre = reader.U32() == kMagic;
  const Mac expected = MakeMac(kClientLabel, secret_, peer_, self_, peer_nonce_, own_nonce_);
  const bool proved = Matches(expected, reader.Raw(kMacBytes)) && gyre;
  // A stranger gets zeros where the proof would be: nothing to test guesses of the secret on.
  Mac own;
  if (proved) own = MakeMac(kServerLabel, secret_, peer_, self_, peer_nonce_, own_nonce_);
  const bool same_epoch = peer_.epoch == self_.epoch;
  WireWriter writer(output);
  writer.U32(kMagic);
  writer.U32(!proved ? kRefused : same_epoch ? kGoOn : kOtherEpoch);
  writer.Raw(Text(own.bytes));
  if (!proved) return Fail(WrongSecret(self_, peer_));
  if (!same_epoch) return Fail(OtherEpoch(self_, peer_));
  wanted_ = 0;
}

// --- Client ---

HandshakeClient::HandshakeClient(HandshakeIdentity self, std::string secret, std::string& output)
    : Handshake(std::move(self), std::move(secret), kChallengeBytes) {
  WireWriter writer(output);
  writer.U32(kMagic);
  writer.U16(kVersion);
  writer.U8(static_cast<uint8_t>(self_.role));
  writer.U8(0);
  writer.U64(self_.epoch);
  writer.U32(static_cast<uint32_t>(self_.rank));
  writer.U32(0);
  writer.Raw(JobDigest(self_.job_id));
  writer.Raw(Text(own_nonce_));
}

void HandshakeClient::Receive(Bytes input, std::string& output) {
  if (proved_) {
    ReceiveVerdict(input);
  } else {
    ReceiveChallenge(input, output);
  }
}

void HandshakeClient::ReceiveChallenge(Bytes input, std::string& output) {
  WireReader reader(input);
  if (reader.U32() != kMagic) return Fail(NotGyre());
  const uint16_t version = reader.U16();
  const uint8_t role = reader.U8();
  uint8_t code = reader.U8();
  peer_.epoch = reader.U64();
  peer_.rank = static_cast<int>(reader.U32());
  reader.U32();
  const std::string_view nonce = reader.Raw(peer_nonce_.size());
  if (!reader.AtEnd() || !IsRole(role)) return Fail(NotGyre());
  peer_.role = static_cast<Role>(role);
  std::ranges::copy(AsBytes(nonce), peer_nonce_.begin());
  if (code == kGoOn && version != kVersion) code = kOtherVersion;
  if (code != kGoOn) return Fail(RefusalStatus(code, self_, peer_));

  const Mac proof = MakeMac(kClientLabel, secret_, self_, peer_, own_nonce_, peer_nonce_);
  if (!proof.made) return Fail(absl::InternalError("HMAC-SHA256 is not to be had"));
  WireWriter writer(output);
  writer.U32(kMagic);
  writer.Raw(Text(proof.bytes));
  proved_ = true;
  wanted_ = kVerdictBytes;
}

void HandshakeClient::ReceiveVerdict(Bytes input) {
  WireReader reader(input);
  if (reader.U32() != kMagic) return Fail(NotGyre());
  const uint32_t code = reader.U32();
  const Mac expected = MakeMac(kServerLabel, secret_, self_, peer_, own_nonce_, peer_nonce_);
  // The MAC covers both epochs, but not the code.
  const bool same_epoch = peer_.epoch == self_.epoch;
  if (code != (same_epoch ? kGoOn : kOtherEpoch) || !Matches(expected, reader.Raw(kMacBytes))) {
    return Fail(WrongSecret(self_, peer_));
  }
  if (!same_epoch) return Fail(OtherEpoch(self_, peer_));
  wanted_ = 0;
}

// --- Blocking forms ---

namespace {

absl::StatusOr<HandshakeIdentity> Run(Handshake& handshake, int fd, std::string output, TimePoint deadline) {
  std::array<std::byte, kMaxHandshakeMessageBytes> input;
  for (;;) {
    if (const absl::Status sent = SendAll(fd, AsBytes(output), deadline); !sent.ok()) {
      RETURN_IF_ERROR(handshake.status());  // says more than that the refused have gone
      return Annotate(sent, "handshake");
    }
    output.clear();
    RETURN_IF_ERROR(handshake.status());
    if (handshake.done()) return handshake.peer();
    const MutableBytes message = MutableBytes(input).first(handshake.wanted());
    RETURN_IF_ERROR(Annotate(ReceiveExactly(fd, message, deadline), "handshake"));
    handshake.Receive(message, output);
  }
}

}  // namespace

absl::StatusOr<HandshakeIdentity> AuthenticateTo(int fd, const HandshakeIdentity& self, const std::string& secret,
                                                 TimePoint deadline) {
  std::string hello;
  HandshakeClient client(self, secret, hello);
  return Run(client, fd, std::move(hello), deadline);
}

}  // namespace gyre
