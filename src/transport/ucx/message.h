// What stands at the head of every message of the UCX transport, and who may send it. Layout: docs/wire_format.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "transport/ucx/wire.h"

namespace gyre::ucx {

enum class Kind : uint32_t {
  kData = 1,      // number: of the line's data messages, from 0
  kCredit = 2,    // number: of the other direction, the charge of all that was read so far
  kEnd = 3,       // number: how many data messages there were
  kGoodbye = 4,   // nothing else follows; to be answered once all that came before is there
  kFarewell = 5,  // that answer
};

struct Message {
  Kind kind = Kind::kData;
  int sender = -1;       // rank in the job
  uint64_t channel = 0;  // of the first three
  uint64_t number = 0;

  friend bool operator==(const Message&, const Message&) = default;
};

// Proves that a message comes from this rank of this job in this epoch, and is for this receiver's present run.
using Token = std::array<std::byte, 16>;
using Nonce = std::array<std::byte, 16>;

// The first half of HMAC-SHA256(secret, label, job id, epoch, sender, receiver, receiver's nonce).
struct TokenOf {
  std::string_view secret;
  std::string_view job_id;
  uint64_t epoch = 0;
  int sender = -1;
  int receiver = -1;
  Nonce nonce{};  // the receiver's
};
// kInternal: OpenSSL does not make it.
absl::StatusOr<Token> MakeToken(const TokenOf& of);

// kUnavailable: the system has no random numbers.
absl::StatusOr<Nonce> MakeNonce();

Header Encode(const Token& token, const Message& message);

// What a header says, whoever has sent it; kDataLoss: there is no such kind.
absl::StatusOr<Message> DecodeMessage(const Header& header);

// In constant time.
bool HasToken(const Header& header, const Token& token);

}  // namespace gyre::ucx
