// FrameDecoder: streams of frames, cut anywhere.
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "fuzzers.h"
#include "net/framing.h"

namespace gyre::fuzz {

namespace {

constexpr size_t kLengthOffset = 20;
constexpr size_t kChecksumOffset = 24;

FrameHeader RandomHeader(Mutator& random) {
  return {static_cast<uint16_t>(random.Number()), static_cast<uint16_t>(random.Number()), random.Number(),
          static_cast<uint32_t>(random.Number())};
}

// Gives the frame at the front a checksum that is right for its header and what follows, its length perhaps a lie.
void ResealFrame(std::string& frame) {
  if (frame.size() < kFrameHeaderBytes) return;
  uint32_t length = 0;
  std::memcpy(&length, frame.data() + kLengthOffset, sizeof(length));
  const size_t size = std::min<size_t>(length, frame.size() - kFrameHeaderBytes);
  const uint64_t checksum =
      XXH3_64bits_withSeed(frame.data() + kFrameHeaderBytes, size, XXH3_64bits(frame.data(), kChecksumOffset));
  std::memcpy(frame.data() + kChecksumOffset, &checksum, sizeof(checksum));
}

struct Stream {
  std::string bytes;
  int frames = 0;
  bool valid = true;
};

Stream RandomStream(Mutator& random, uint32_t cap) {
  Stream stream;
  for (uint64_t count = random.Below(5); count > 0; --count) {
    const size_t size = random.OneIn(40) ? random.Below(20'000) : random.Below(300);
    if (size > cap) stream.valid = false;
    stream.bytes += EncodeFrame(RandomHeader(random), random.RandomBytes(size));
    ++stream.frames;
  }
  const std::string original = stream.bytes;
  switch (random.Below(4)) {
    case 0: return stream;
    case 1:
      stream.bytes = random.MutatedInPlace(std::move(stream.bytes));
      ResealFrame(stream.bytes);
      break;
    case 2: stream.bytes = random.Mutated(std::move(stream.bytes)); break;
    default: stream.bytes += random.RandomBytes(random.Below(100));
  }
  stream.valid = stream.valid && stream.bytes == original;
  return stream;
}

// After an error: the same error for whatever comes, a valid frame too.
std::string CheckFailed(FrameDecoder& decoder, const absl::Status& error) {
  if (!absl::IsDataLoss(error)) return "another error than kDataLoss";
  const std::string frame = EncodeFrame({}, "");
  Bytes bytes = AsBytes(frame);
  const auto next = decoder.Next(bytes);
  if (next.ok() || next.status() != error) return "did not stay failed";
  return "";
}

}  // namespace

std::string FuzzFrames(Mutator& random) {
  const uint32_t caps[] = {0, 16, 200, 4096, 1 << 20, 0xffffffff};
  const uint32_t cap = caps[random.Below(std::size(caps))];
  const Stream stream = RandomStream(random, cap);
  FrameDecoder decoder(cap);
  const AllocationMeter meter;
  size_t fed = 0, begun = 0;  // where the frame in course begins
  int frames = 0;
  while (fed < stream.bytes.size()) {
    const size_t piece = random.OneIn(2) ? stream.bytes.size() : 1 + random.Below(100);
    Bytes bytes = AsBytes(stream.bytes).subspan(fed, std::min(piece, stream.bytes.size() - fed));
    fed += bytes.size();
    // Also once more when all is consumed: a frame without a payload is complete with its header.
    for (bool more = true; more;) {
      const auto frame = decoder.Next(bytes);
      if (!frame.ok()) return stream.valid ? "refused what is valid" : CheckFailed(decoder, frame.status());
      more = frame->has_value();
      if (!more) {
        if (!bytes.empty()) return "left bytes behind without a frame";
        continue;
      }
      ++frames;
      if ((*frame)->payload.size() > cap) return "gave a payload over the cap";
      const size_t end = fed - bytes.size();
      if (EncodeFrame((*frame)->header, (*frame)->payload) != stream.bytes.substr(begun, end - begun)) {
        return "gave another frame than came";
      }
      begun = end;
    }
  }
  if (stream.valid && frames != stream.frames) return "did not give all frames";
  const int64_t allowed = (int64_t{16} << 10) + 4 * static_cast<int64_t>(stream.bytes.size());
  return meter.peak() > allowed ? "took " + std::to_string(meter.peak()) + " bytes" : "";
}

}  // namespace gyre::fuzz
