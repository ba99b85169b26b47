#include "net/framing.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre {

namespace {

constexpr size_t kChecksumOffset = kFrameHeaderBytes - sizeof(uint64_t);
constexpr size_t kFirstReservation = 4096;

// Over the header without its last field, and the payload.
uint64_t Checksum(Bytes header, std::string_view payload) {
  // The header's hash seeds the payload's: one pass, no streaming state to allocate.
  const uint64_t seed = XXH3_64bits(header.data(), kChecksumOffset);
  return XXH3_64bits_withSeed(payload.data(), payload.size(), seed);
}

}  // namespace

std::string EncodeFrame(const FrameHeader& header, std::string_view payload) {
  std::string bytes;
  bytes.reserve(kFrameHeaderBytes + payload.size());
  WireWriter writer(bytes);
  writer.U32(kFrameMagic);
  writer.U16(header.type);
  writer.U16(header.flags);
  writer.U64(header.epoch);
  writer.U32(header.sequence);
  writer.U32(static_cast<uint32_t>(payload.size()));
  writer.U64(Checksum(AsBytes(bytes), payload));
  writer.Raw(payload);
  return bytes;
}

absl::StatusOr<std::optional<Frame>> FrameDecoder::Next(Bytes& bytes) {
  RETURN_IF_ERROR(failed_);
  if (header_filled_ < kFrameHeaderBytes) RETURN_IF_ERROR(ReadHeader(bytes));
  if (header_filled_ < kFrameHeaderBytes) return std::nullopt;
  ReadPayload(bytes);
  if (payload_.size() < length_) return std::nullopt;
  return Finish();
}

absl::Status FrameDecoder::ReadHeader(Bytes& bytes) {
  const size_t taken = std::min(kFrameHeaderBytes - header_filled_, bytes.size());
  std::copy_n(bytes.begin(), taken, header_bytes_.begin() + static_cast<ptrdiff_t>(header_filled_));
  header_filled_ += taken;
  bytes = bytes.subspan(taken);
  if (header_filled_ < kFrameHeaderBytes) return absl::OkStatus();
  WireReader reader{Bytes(header_bytes_)};
  if (reader.U32() != kFrameMagic) return Fail("no frame starts here");
  header_.type = reader.U16();
  header_.flags = reader.U16();
  header_.epoch = reader.U64();
  header_.sequence = reader.U32();
  length_ = reader.U32();
  checksum_ = reader.U64();
  if (length_ > max_payload_) return Fail(absl::StrCat(length_, " bytes are over the cap of ", max_payload_));
  return absl::OkStatus();
}

void FrameDecoder::ReadPayload(Bytes& bytes) {
  const size_t taken = std::min(length_ - payload_.size(), bytes.size());
  const size_t filled = payload_.size() + taken;
  // Memory follows what has arrived, not what was announced.
  if (filled > payload_.capacity()) {
    payload_.reserve(std::min<size_t>(length_, std::max(2 * filled, kFirstReservation)));
  }
  payload_.append(AsText(bytes.first(taken)));
  bytes = bytes.subspan(taken);
}

absl::StatusOr<std::optional<Frame>> FrameDecoder::Finish() {
  if (Checksum(header_bytes_, payload_) != checksum_) return Fail("the checksum does not match");
  Frame frame{header_, std::move(payload_)};
  payload_ = {};
  header_filled_ = 0;
  return frame;
}

absl::Status FrameDecoder::Fail(std::string_view why) {
  failed_ = absl::DataLossError(absl::StrCat("malformed frame: ", ToAbsl(why)));
  payload_ = {};
  return failed_;
}

}  // namespace gyre
