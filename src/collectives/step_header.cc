#include "collectives/step_header.h"

#include <xxhash.h>

#include <cstddef>
#include <cstdint>

namespace gyre::internal {

namespace {

constexpr uint32_t kMagic = 0x53525947;  // "GYRS"
constexpr size_t kCheckedBytes = kStepHeaderBytes - sizeof(uint32_t);

// As WireWriter, without a string: headers are written for every block of every call.
class HeaderWriter {
 public:
  explicit HeaderWriter(EncodedStepHeader& bytes) : bytes_(bytes) {}

  void U8(uint8_t value) { Integer(value); }
  void U32(uint32_t value) { Integer(value); }
  void U64(uint64_t value) { Integer(value); }

 private:
  template <typename T>
  void Integer(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_[next_++] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
  }

  EncodedStepHeader& bytes_;
  size_t next_ = 0;
};

uint32_t Checksum(const EncodedStepHeader& bytes) {
  return static_cast<uint32_t>(XXH3_64bits(bytes.data(), kCheckedBytes));
}

}  // namespace

EncodedStepHeader Encode(const StepHeader& header) {
  EncodedStepHeader bytes;
  HeaderWriter writer(bytes);
  writer.U32(kMagic);
  writer.U32(header.index);
  writer.U64(header.channel);
  writer.U64(header.call);
  writer.U8(header.signature.kind);
  writer.U8(header.signature.dtype);
  writer.U8(header.signature.op);
  writer.U8(header.signature.device);
  writer.U32(static_cast<uint32_t>(header.signature.root));
  writer.U64(static_cast<uint64_t>(header.signature.count));
  writer.U64(header.signature.digest);
  writer.U64(static_cast<uint64_t>(header.bytes));
  writer.U32(header.checksum ? 1 : 0);
  writer.U32(Checksum(bytes));
  return bytes;
}

absl::StatusOr<StepHeader> DecodeStepHeader(const EncodedStepHeader& bytes) {
  WireReader reader{Bytes(bytes)};
  StepHeader header;
  const uint32_t magic = reader.U32();
  header.index = reader.U32();
  header.channel = reader.U64();
  header.call = reader.U64();
  header.signature.kind = reader.U8();
  header.signature.dtype = reader.U8();
  header.signature.op = reader.U8();
  header.signature.device = reader.U8();
  header.signature.root = static_cast<int32_t>(reader.U32());
  header.signature.count = static_cast<int64_t>(reader.U64());
  header.signature.digest = reader.U64();
  header.bytes = static_cast<int64_t>(reader.U64());
  const uint32_t flags = reader.U32();
  header.checksum = flags == 1;
  const uint32_t checksum = reader.U32();
  if (magic != kMagic || checksum != Checksum(bytes) || header.bytes < 0 || flags > 1) {
    return absl::DataLossError("damaged header");
  }
  return header;
}

}  // namespace gyre::internal
