#include "transport/ucx/message.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <cstring>
#include <string>

#include "net/bytes.h"

namespace gyre::ucx {

namespace {

constexpr std::string_view kLabel = "gyre ucx: message";

}  // namespace

absl::StatusOr<Token> MakeToken(const TokenOf& of) {
  const std::string text = Written([&](WireWriter& writer) {
    writer.Text(kLabel);
    writer.Text(of.job_id);
    writer.U64(of.epoch);
    writer.I32(of.sender);
    writer.I32(of.receiver);
    writer.Raw(AsText(of.nonce));
  });
  std::array<unsigned char, 32> digest{};
  size_t size = 0;
  const bool made = EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, of.secret.data(), of.secret.size(),
                              reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(),
                              digest.size(), &size) != nullptr;
  if (!made || size != digest.size()) return absl::InternalError("HMAC-SHA256 is not to be had");
  Token token;
  std::memcpy(token.data(), digest.data(), token.size());
  return token;
}

absl::StatusOr<Nonce> MakeNonce() {
  Nonce nonce;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), nonce.size()) == 1) return nonce;
  return absl::UnavailableError("no random numbers are to be had");
}

Header Encode(const Token& token, const Message& message) {
  Header header;
  auto put = [at = header.data()](auto value) mutable {
    for (size_t i = 0; i < sizeof(value); ++i) *at++ = static_cast<std::byte>((value >> (8 * i)) & 0xff);
  };
  for (const std::byte byte : token) put(static_cast<uint8_t>(byte));
  put(static_cast<uint32_t>(message.kind));
  put(static_cast<uint32_t>(message.sender));
  put(message.channel);
  put(message.number);
  return header;
}

absl::StatusOr<Message> DecodeMessage(const Header& header) {
  WireReader reader{Bytes(header)};
  reader.Raw(sizeof(Token));
  const uint32_t kind = reader.U32();
  Message message;
  message.sender = reader.I32();
  message.channel = reader.U64();
  message.number = reader.U64();
  if (kind < static_cast<uint32_t>(Kind::kData) || kind > static_cast<uint32_t>(Kind::kFarewell)) {
    return absl::DataLossError("a message of no known kind");
  }
  message.kind = static_cast<Kind>(kind);
  return message;
}

bool HasToken(const Header& header, const Token& token) {
  return CRYPTO_memcmp(header.data(), token.data(), token.size()) == 0;
}

}  // namespace gyre::ucx
