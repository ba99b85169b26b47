#include "transport/tcp/hub_garbage.h"

#include <utility>

namespace gyre::tcp {

using support::Mutator;

namespace {

std::string ControlFrame(FrameType type, uint64_t epoch, uint32_t sequence, const std::string& payload = {}) {
  return EncodeFrame({.type = static_cast<uint16_t>(type), .epoch = epoch, .sequence = sequence}, payload);
}

std::string RandomText(Mutator& random) {
  return random.RandomBytes(random.OneIn(20) ? random.Below(kMaxTextBytes + 100) : random.Below(50));
}

}  // namespace

Recording RecordInProcess(const HandshakeIdentity& client_self, const HandshakeIdentity& server_self,
                          const std::string& secret) {
  Recording recording;
  HandshakeClient client(client_self, secret, recording.hello);
  HandshakeServer server(server_self, secret);
  std::string challenge;
  server.Receive(AsBytes(recording.hello), challenge);
  client.Receive(AsBytes(challenge), recording.proof);
  server.Receive(AsBytes(recording.proof), recording.verdict);
  recording.purpose = EncodePurpose(client_self.epoch, {.control = true});
  recording.frames = ControlFrame(FrameType::kHeartbeat, client_self.epoch, 1) +
                     ControlFrame(FrameType::kLoss, client_self.epoch, 2, Encode(Loss{2, 0, "it is not"})) +
                     ControlFrame(FrameType::kGoodbye, client_self.epoch, 3);
  return recording;
}

std::string StrangersMessage(Mutator& random, const Recording& recording) {
  if (random.OneIn(5)) return random.RandomBytes(random.Below(300));
  std::string message;
  switch (random.Below(7)) {
    case 0: message = recording.hello; break;
    case 1: message = recording.proof; break;
    case 2: message = recording.verdict; break;
    case 3: message = recording.purpose; break;
    case 4: message = recording.frames; break;
    case 5: message = recording.hello + recording.proof; break;
    default: message = recording.hello + recording.proof + recording.purpose + recording.frames;
  }
  return random.OneIn(6) ? message : random.Mutated(std::move(message));
}

namespace {

// A payload for a frame of some type, that accuses nobody who may not be accused.
std::pair<FrameType, std::string> Tell(Mutator& random, const LieOptions& options) {
  std::string payload;
  FrameType type = FrameType::kHeartbeat;
  switch (random.Below(5)) {
    case 0: break;
    case 1: {
      type = FrameType::kAnnouncement;
      const auto code = static_cast<absl::StatusCode>(1 + random.Below(random.OneIn(20) ? 30 : 16));
      payload = Encode(Announcement{random.Number(), code, static_cast<int>(random.Below(10)) - 1, RandomText(random)});
      break;
    }
    case 2: {
      type = FrameType::kLoss;
      const int accused = random.OneIn(30)   ? options.hearer
                          : random.OneIn(30) ? static_cast<int>(random.Below(static_cast<uint64_t>(options.liars)))
                                             : 100'000 + static_cast<int>(random.Below(1000));
      payload = Encode(Loss{accused, static_cast<int>(random.Below(10)), RandomText(random)});
      break;
    }
    default: return {random.OneIn(100) ? FrameType::kGoodbye : type, payload};
  }
  if (random.OneIn(30)) payload = random.Mutated(std::move(payload));
  if (random.OneIn(60)) type = static_cast<FrameType>(random.Below(8));
  if (random.OneIn(100)) payload.resize(kMaxControlPayload + random.Below(2));
  const auto loss = DecodeLoss(payload);
  if (loss.ok() && loss->rank != options.hearer && !options.may_be_accused(loss->rank)) payload = {};
  return {type, payload};
}

std::string RandomPurpose(Mutator& random, const LieOptions& options) {
  std::string payload = EncodePurpose(options.epoch, {random.OneIn(2), random.Number()}).substr(kFrameHeaderBytes);
  if (random.OneIn(2)) payload = random.Mutated(std::move(payload));
  return EncodeFrame({.type = static_cast<uint16_t>(random.OneIn(3) ? random.Below(7) : 1),
                      .epoch = options.epoch + (random.OneIn(5) ? 1 : 0),
                      .sequence = random.OneIn(5) ? 1u : 0u},
                     payload);
}

}  // namespace

Lies TellControlLies(Mutator& random, const LieOptions& options, uint32_t sequence) {
  Lies lies;
  for (uint64_t count = random.Below(60); count > 0; --count) {
    const auto [type, payload] = Tell(random, options);
    const uint64_t epoch = options.epoch + (random.OneIn(300) ? 1 : 0);
    std::string frame = ControlFrame(type, epoch, sequence++ + (random.OneIn(300) ? 1 : 0), payload);
    // With a checksum that no longer fits: what is changed cannot accuse anybody.
    if (random.OneIn(100)) frame = random.Mutated(std::move(frame));
    lies.bytes += frame;
    ++lies.frames;
  }
  return lies;
}

Lies TellLies(Mutator& random, const LieOptions& options) {
  switch (random.Below(12)) {
    case 0: return {random.RandomBytes(1 + random.Below(200)), 1};
    case 1: return {random.Mutated(EncodePurpose(options.epoch, {.control = random.OneIn(2)})), 1};
    case 2: return {RandomPurpose(random, options), 1};
    case 3: return {EncodePurpose(options.epoch, {.control = true}).substr(0, random.Below(kPurposeFrameBytes)), 1};
    case 4:
    case 5: {
      // Some of the job's own channels among them.
      const uint64_t channel = (random.Below(9) << 32) + random.Below(8);
      return {EncodePurpose(options.epoch, {.channel = channel}) + random.RandomBytes(random.Below(3000)), 2};
    }
    default: break;
  }
  Lies lies = TellControlLies(random, options, 1);
  return {EncodePurpose(options.epoch, {.control = true}) + lies.bytes, lies.frames + 1};
}

}  // namespace gyre::tcp
