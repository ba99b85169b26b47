// Frames: messages on a byte stream that may be cut anywhere. Layout: docs/wire_format.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "net/bytes.h"

namespace gyre {

inline constexpr uint32_t kFrameMagic = 0x46525947;  // "GYRF"
inline constexpr size_t kFrameHeaderBytes = 32;

struct FrameHeader {
  uint16_t type = 0;      // the protocol above says which there are
  uint16_t flags = 0;     // likewise
  uint64_t epoch = 0;     // the receiver refuses what is not of its own
  uint32_t sequence = 0;  // a reply carries its request's
};

struct Frame {
  FrameHeader header;
  std::string payload;
};

// Header, checksum and payload, ready to send. REQUIRES: the payload is shorter than 4 GiB.
std::string EncodeFrame(const FrameHeader& header, std::string_view payload);

// Takes a stream apart, whatever bytes it holds. Memory: at most `max_payload` bytes, and never more than twice what
// has arrived of a frame. Not thread-safe.
class FrameDecoder {
 public:
  explicit FrameDecoder(uint32_t max_payload) : max_payload_(max_payload) {}

  // Consumes from the front of `bytes` until a frame is complete, and returns it; or consumes everything and returns
  // empty. kDataLoss: the bytes are no frame (magic, length over the cap, checksum). After an error the stream has no
  // more frames: every further call returns the same error.
  absl::StatusOr<std::optional<Frame>> Next(Bytes& bytes);

 private:
  absl::Status ReadHeader(Bytes& bytes);
  void ReadPayload(Bytes& bytes);
  absl::StatusOr<std::optional<Frame>> Finish();
  absl::Status Fail(std::string_view why);

  const uint32_t max_payload_;
  std::array<std::byte, kFrameHeaderBytes> header_bytes_{};
  size_t header_filled_ = 0;
  FrameHeader header_;
  uint32_t length_ = 0;
  uint64_t checksum_ = 0;
  std::string payload_;
  absl::Status failed_;
};

}  // namespace gyre
