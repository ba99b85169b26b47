#include "transport/tcp/control_frames.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/bytes.h"

namespace gyre::tcp {

namespace {

constexpr uint8_t kControl = 1;
constexpr uint8_t kData = 2;
constexpr int32_t kLastCode = 16;  // absl::StatusCode::kUnauthenticated

absl::Status Malformed(std::string_view what) {
  return absl::DataLossError(absl::StrCat("malformed frame: ", ToAbsl(what)));
}

std::string_view Cut(std::string_view text) {
  return text.substr(0, kMaxTextBytes);
}

}  // namespace

std::string EncodePurpose(uint64_t epoch, const Purpose& purpose) {
  std::string payload;
  WireWriter writer(payload);
  writer.U8(purpose.control ? kControl : kData);
  writer.Raw(std::string_view("\0\0\0\0\0\0\0", 7));
  writer.U64(purpose.channel);
  return EncodeFrame({.type = static_cast<uint16_t>(FrameType::kPurpose), .epoch = epoch}, payload);
}

absl::StatusOr<Purpose> DecodePurpose(std::string_view payload) {
  WireReader reader(payload);
  const uint8_t kind = reader.U8();
  reader.Raw(7);
  const uint64_t channel = reader.U64();
  if (!reader.AtEnd() || (kind != kControl && kind != kData)) return Malformed("no purpose");
  return Purpose{kind == kControl, channel};
}

std::string Encode(const Announcement& announcement) {
  return Written([&](WireWriter& writer) {
    writer.U64(announcement.communicator);
    writer.I32(static_cast<int>(announcement.code));
    writer.I32(announcement.rank);
    writer.Text(Cut(announcement.text));
  });
}

absl::StatusOr<Announcement> DecodeAnnouncement(std::string_view payload) {
  WireReader reader(payload);
  Announcement announcement;
  announcement.communicator = reader.U64();
  const int32_t code = reader.I32();
  announcement.rank = reader.I32();
  announcement.text = reader.Text();
  if (!reader.AtEnd() || code <= 0 || code > kLastCode || announcement.rank < -1) return Malformed("no announcement");
  announcement.code = static_cast<absl::StatusCode>(code);
  return announcement;
}

std::string Encode(const Loss& loss) {
  return Written([&](WireWriter& writer) {
    writer.I32(loss.rank);
    writer.I32(loss.reporter);
    writer.Text(Cut(loss.text));
  });
}

absl::StatusOr<Loss> DecodeLoss(std::string_view payload) {
  WireReader reader(payload);
  Loss loss;
  loss.rank = reader.I32();
  loss.reporter = reader.I32();
  loss.text = reader.Text();
  if (!reader.AtEnd() || loss.rank < 0 || loss.reporter < 0) return Malformed("no loss");
  return loss;
}

std::string Encode(const CallNotice& notice) {
  return Written([&](WireWriter& writer) {
    writer.U64(notice.communicator);
    writer.U64(notice.number);
    writer.U8(notice.signature.kind);
    writer.U8(notice.signature.dtype);
    writer.U8(notice.signature.op);
    writer.U8(notice.signature.device);
    writer.I32(notice.signature.root);
    writer.U64(static_cast<uint64_t>(notice.signature.count));
    writer.U64(notice.signature.digest);
  });
}

absl::StatusOr<CallNotice> DecodeCallNotice(std::string_view payload) {
  WireReader reader(payload);
  CallNotice notice;
  notice.communicator = reader.U64();
  notice.number = reader.U64();
  notice.signature.kind = reader.U8();
  notice.signature.dtype = reader.U8();
  notice.signature.op = reader.U8();
  notice.signature.device = reader.U8();
  notice.signature.root = reader.I32();
  notice.signature.count = static_cast<int64_t>(reader.U64());
  notice.signature.digest = reader.U64();
  if (!reader.AtEnd()) return Malformed("no call");
  return notice;
}

absl::Status CheckHeader(const FrameHeader& header, uint64_t epoch, uint32_t sequence) {
  if (header.epoch != epoch) {
    return absl::DataLossError(absl::StrCat("frame of epoch ", header.epoch, ", this is epoch ", epoch));
  }
  if (header.sequence != sequence) {
    return absl::DataLossError(absl::StrCat("frame ", header.sequence, " where frame ", sequence, " is due"));
  }
  return absl::OkStatus();
}

}  // namespace gyre::tcp
