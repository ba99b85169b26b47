// What hubs tell each other: payloads, and the control connection that carries them.
#include <sys/socket.h>

#include <algorithm>
#include <chrono>

#include "fuzzers.h"
#include "net/event_loop.h"
#include "transport/tcp/control_frames.h"
#include "transport/tcp/control_link.h"

namespace gyre::fuzz {

namespace {

constexpr uint64_t kHubEpoch = 3;

std::string RandomHubText(Mutator& random) {
  return random.RandomBytes(random.OneIn(50) ? random.Below(tcp::kMaxTextBytes + 1) : random.Below(60));
}

// Of a rank, or -1.
int RandomRank(Mutator& random) {
  return static_cast<int>(random.Number() >> 33) - (random.OneIn(4) ? 1 : 0);
}

tcp::Announcement RandomAnnouncement(Mutator& random) {
  return {random.Number(), static_cast<absl::StatusCode>(1 + random.Below(16)), RandomRank(random),
          RandomHubText(random)};
}

tcp::Loss RandomLoss(Mutator& random) {
  return {std::max(RandomRank(random), 0), std::max(RandomRank(random), 0), RandomHubText(random)};
}

// Most are tried with the payloads of others, too.
std::string Decode(uint64_t kind, const std::string& payload, bool valid) {
  // A text from the wire may be longer than what is sent.
  constexpr int64_t kFactor = 4;
  if (kind == 0) {
    const auto encode = [](const tcp::Purpose& purpose) {
      return tcp::EncodePurpose(kHubEpoch, purpose).substr(kFrameHeaderBytes);
    };
    return CheckDecoder(payload, valid, kFactor, tcp::DecodePurpose, encode);
  }
  if (kind == 1) {
    return CheckDecoder(payload, valid, kFactor, tcp::DecodeAnnouncement,
                        [](const tcp::Announcement& decoded) { return tcp::Encode(decoded); });
  }
  if (kind == 2) {
    return CheckDecoder(payload, valid, kFactor, tcp::DecodeCallNotice,
                        [](const tcp::CallNotice& decoded) { return tcp::Encode(decoded); });
  }
  return CheckDecoder(payload, valid, kFactor, tcp::DecodeLoss,
                      [](const tcp::Loss& decoded) { return tcp::Encode(decoded); });
}

}  // namespace

std::string FuzzControlFrames(Mutator& random) {
  const uint64_t kind = random.Below(4);
  std::string payload =
      kind == 0   ? tcp::EncodePurpose(kHubEpoch, {random.OneIn(2), random.Number()}).substr(kFrameHeaderBytes)
      : kind == 1 ? tcp::Encode(RandomAnnouncement(random))
      : kind == 2 ? tcp::Encode(tcp::CallNotice{random.Number(), random.Number(), {.count = RandomRank(random)}})
                  : tcp::Encode(RandomLoss(random));
  const bool valid = random.OneIn(4);
  if (!valid) payload = random.Mutated(std::move(payload));
  if (std::string wrong = Decode(kind, payload, valid); !wrong.empty()) return wrong;
  return valid ? "" : Decode(random.Below(4), payload, false);
}

namespace {

struct Sent {
  std::string bytes;
  std::vector<std::string> frames;  // up to the first that is not right
};

// A connection's bytes: frames in their order, until something is wrong with one.
Sent RandomFrames(Mutator& random) {
  Sent sent;
  bool right = true;
  for (uint32_t sequence = 0, count = static_cast<uint32_t>(random.Below(6)); sequence < count; ++sequence) {
    FrameHeader header{static_cast<uint16_t>(random.Below(7)), static_cast<uint16_t>(random.Below(2)), kHubEpoch,
                       sequence};
    std::string payload = random.OneIn(2) ? tcp::Encode(RandomLoss(random)) : random.RandomBytes(random.Below(100));
    if (random.OneIn(16)) header.epoch += random.Below(3);
    if (random.OneIn(16)) header.sequence += static_cast<uint32_t>(random.Below(3));
    if (random.OneIn(30)) payload.resize(tcp::kMaxControlPayload + random.Below(2));
    std::string frame = EncodeFrame(header, payload);
    const std::string original = frame;
    if (random.OneIn(10)) frame = random.Mutated(std::move(frame));
    right =
        right && header.epoch == kHubEpoch && header.sequence == sequence && payload.size() <= tcp::kMaxControlPayload;
    // What was put behind a frame comes after it.
    if (right && frame.starts_with(original)) sent.frames.push_back(original);
    right = right && frame == original;
    sent.bytes += frame;
  }
  return sent;
}

}  // namespace

// The link gives the frames that are right, and then ends once, with a status.
std::string FuzzControlLink(Mutator& random) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return "no sockets";
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  auto loop = EventLoop::Create();
  if (!loop.ok()) return "no event loop";
  std::vector<std::string> got;
  std::vector<absl::Status> ended;
  auto link = tcp::ControlLink::Create(
      **loop, std::move(ours), /*connector=*/true, kHubEpoch,
      [&](const Frame& frame) { got.push_back(EncodeFrame(frame.header, frame.payload)); },
      [&](const absl::Status& why) { ended.push_back(why); });
  if (!link.ok()) return "no link";
  const Sent sent = RandomFrames(random);
  size_t at = 0;
  for (int turn = 0; turn < 200 && ended.empty(); ++turn) {
    const size_t piece =
        std::min<size_t>(random.OneIn(2) ? sent.bytes.size() : 1 + random.Below(300), sent.bytes.size() - at);
    const ssize_t taken = send(theirs.get(), sent.bytes.data() + at, piece, MSG_NOSIGNAL | MSG_DONTWAIT);
    at += taken > 0 ? static_cast<size_t>(taken) : 0;
    if (at == sent.bytes.size()) shutdown(theirs.get(), SHUT_WR);
    if (random.OneIn(3)) (*link)->Send(tcp::FrameType::kLoss, random.RandomBytes(random.Below(100)));
    if (!(*loop)->RunOnce(std::chrono::steady_clock::now() + std::chrono::seconds(5)).ok()) return "the loop failed";
  }
  if (ended.size() != 1) return "ended " + std::to_string(ended.size()) + " times";
  if (ended[0].ok() || (!absl::IsUnavailable(ended[0]) && !absl::IsDataLoss(ended[0])))
    return "ended in no such status";
  return got == sent.frames ? "" : "gave other frames than came";
}

}  // namespace gyre::fuzz
