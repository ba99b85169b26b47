#include "garbage.h"

#include <utility>

#include "bootstrap/store_protocol.h"
#include "net/framing.h"

namespace gyre {

GarbageMaker::GarbageMaker(uint64_t seed, HandshakeIdentity self, std::string secret)
    : random_(seed), self_(std::move(self)), secret_(std::move(secret)) {
  Record();
}

// The messages of a handshake that succeeds, one after the other and as one piece, and a frame of each kind.
void GarbageMaker::Record() {
  std::string hello;
  HandshakeClient client(self_, secret_, hello);
  HandshakeServer server({self_.job_id, self_.epoch, -1, Role::kStore}, secret_);
  std::string challenge, proof, verdict;
  server.Receive(AsBytes(hello), challenge);
  client.Receive(AsBytes(challenge), proof);
  server.Receive(AsBytes(proof), verdict);
  recorded_ = {hello, challenge, proof, verdict, hello + proof};
  for (uint16_t type = 1; type <= 6; ++type) {
    StoreRequest request;
    request.kind = static_cast<StoreMessage>(type);
    request.key = "garbage";
    request.value = "value";
    request.timeout_ms = 1000;
    request.size = 2;
    recorded_.push_back(EncodeFrame({type, 0, self_.epoch, type}, EncodeRequest(request)));
  }
}

std::string GarbageMaker::Message() {
  if (Below(5) == 0) return random_.RandomBytes(Below(300));
  std::string message = recorded_[Below(recorded_.size())];
  return Below(6) == 0 ? message : random_.Mutated(std::move(message));
}

std::string GarbageMaker::WellFormedFrame() {
  const uint16_t type = static_cast<uint16_t>(Below(8));
  const uint64_t epoch = Below(8) == 0 ? random_() : self_.epoch;
  std::string payload = Below(3) == 0 ? random_.RandomBytes(Below(200)) : RandomRequest();
  if (Below(2) == 0) payload = random_.Mutated(std::move(payload));
  const uint16_t flags = Below(4) == 0 ? static_cast<uint16_t>(random_()) : uint16_t{0};
  return EncodeFrame({type, flags, epoch, static_cast<uint32_t>(random_())}, payload);
}

std::string GarbageMaker::RandomRequest() {
  const std::string key = "garbage " + std::to_string(Below(20)), value = random_.RandomBytes(Below(200));
  StoreRequest request;
  request.kind = static_cast<StoreMessage>(1 + Below(5));
  request.key = key;
  request.value = value;
  request.amount = static_cast<int64_t>(random_());
  request.timeout_ms = static_cast<uint32_t>(Below(2) == 0 ? Below(100) : random_());
  request.size = static_cast<uint32_t>(Below(4));
  return EncodeRequest(request);
}

}  // namespace gyre
