#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/bytes.h"
#include "transport/ucx/channel_streams.h"
#include "transport/ucx/exchange.h"
#include "transport/ucx/factory.h"
#include "transport/ucx/loader.h"
#include "transport/ucx/message.h"

namespace gyre::ucx {

namespace {

// A nonce, then the wire's address.
struct Address {
  Nonce nonce;
  std::string wire;
};

std::string EncodeAddress(const Address& address) {
  return absl::WebSafeBase64Escape(absl::StrCat(ToAbsl(AsText(address.nonce)), address.wire));
}

absl::StatusOr<Address> DecodeAddress(const std::string& text) {
  std::string bytes;
  Address address;
  if (!absl::WebSafeBase64Unescape(text, &bytes) || bytes.size() <= address.nonce.size()) {
    return absl::DataLossError("an address of UCX cannot be read");
  }
  std::memcpy(address.nonce.data(), bytes.data(), address.nonce.size());
  address.wire = bytes.substr(address.nonce.size());
  return address;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> Transport::Create(HandshakeIdentity self, std::string secret) {
  ASSIGN_OR_RETURN(const Module* const module, LoadModule());
  ASSIGN_OR_RETURN(const Nonce nonce, MakeNonce());
  ASSIGN_OR_RETURN(auto exchange, Exchange::Create(self.rank, module->open));
  std::string address = EncodeAddress({nonce, exchange->wire_address()});
  return std::unique_ptr<Transport>(
      new Transport(std::move(self), std::move(secret), std::move(exchange), std::move(address)));
}

Transport::Transport(HandshakeIdentity self, std::string secret, std::shared_ptr<Exchange> exchange,
                     std::string address)
    : self_(std::move(self)),
      secret_(std::move(secret)),
      exchange_(std::move(exchange)),
      address_(std::move(address)) {}

Transport::~Transport() {
  Close();
}

absl::Status Transport::Start(const std::map<int, Peer>& peers, std::function<absl::Status(int)> end_of) {
  ASSIGN_OR_RETURN(const Address own, DecodeAddress(address_));
  std::map<int, ucx::Peer> contacts;
  for (const auto& [rank, peer] : peers) {
    ASSIGN_OR_RETURN(Address address, DecodeAddress(peer.address));
    TokenOf of{.secret = secret_, .job_id = self_.job_id, .epoch = self_.epoch};
    of.sender = rank;
    of.receiver = self_.rank;
    of.nonce = own.nonce;
    ASSIGN_OR_RETURN(const Token sends, MakeToken(of));
    std::swap(of.sender, of.receiver);
    of.nonce = address.nonce;
    ASSIGN_OR_RETURN(const Token receives, MakeToken(of));
    contacts[rank] = {std::move(address.wire), peer.name, sends, receives};
  }
  return exchange_->Start(contacts, std::move(end_of));
}

std::unique_ptr<Streams> Transport::Open(uint64_t channel, const std::vector<int>& peers) {
  return std::make_unique<ChannelStreams>(exchange_, channel, peers);
}

void Transport::Wake() {
  exchange_->Wake();
}

void Transport::Close() {
  exchange_->Close();
}

}  // namespace gyre::ucx
