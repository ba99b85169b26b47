#include "bootstrap/store_protocol.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/bytes.h"

namespace gyre {

absl::Status CheckKey(std::string_view key) {
  if (!key.empty() && key.size() <= kMaxStoreKeyBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a key of the store has 1 to ", kMaxStoreKeyBytes, " bytes, not ", key.size()));
}

absl::Status CheckValue(std::string_view value) {
  if (value.size() <= kMaxStoreValueBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a value in the store has at most ", kMaxStoreValueBytes, " bytes, not ", value.size()));
}

std::string EncodeRequest(const StoreRequest& request) {
  std::string payload;
  WireWriter writer(payload);
  switch (request.kind) {
    case StoreMessage::kJoin:
      writer.U32(request.size);
      writer.U32(request.process);
      writer.U64(request.life);
      break;
    case StoreMessage::kSet:
      writer.Text(request.key);
      writer.Text(request.value);
      break;
    case StoreMessage::kGet:
      writer.U32(request.timeout_ms);
      writer.Text(request.key);
      break;
    case StoreMessage::kAdd:
      writer.U64(static_cast<uint64_t>(request.amount));
      writer.Text(request.key);
      break;
    case StoreMessage::kGather:
      writer.U32(request.timeout_ms);
      writer.Text(request.key);
      writer.Text(request.value);
      break;
    case StoreMessage::kReply: break;
  }
  return payload;
}

absl::StatusOr<StoreRequest> DecodeRequest(uint16_t type, std::string_view payload) {
  StoreRequest request;
  request.kind = static_cast<StoreMessage>(type);
  WireReader reader(payload);
  switch (request.kind) {
    case StoreMessage::kJoin:
      request.size = reader.U32();
      request.process = reader.U32();
      request.life = reader.U64();
      break;
    case StoreMessage::kSet:
      request.key = reader.Text();
      request.value = reader.Text();
      break;
    case StoreMessage::kGet:
      request.timeout_ms = reader.U32();
      request.key = reader.Text();
      break;
    case StoreMessage::kAdd:
      request.amount = static_cast<int64_t>(reader.U64());
      request.key = reader.Text();
      break;
    case StoreMessage::kGather:
      request.timeout_ms = reader.U32();
      request.key = reader.Text();
      request.value = reader.Text();
      break;
    default: return absl::InvalidArgumentError(absl::StrCat("the store knows no request of type ", type));
  }
  if (!reader.AtEnd()) return absl::InvalidArgumentError("malformed request to the store");
  if (request.kind != StoreMessage::kJoin) RETURN_IF_ERROR(CheckKey(request.key));
  RETURN_IF_ERROR(CheckValue(request.value));
  return request;
}

std::string EncodeValues(const std::vector<std::string>& values) {
  std::string payload;
  WireWriter writer(payload);
  writer.U32(static_cast<uint32_t>(values.size()));
  for (const std::string& value : values) writer.Text(value);
  return payload;
}

absl::StatusOr<std::vector<std::string>> DecodeValues(std::string_view payload) {
  WireReader reader(payload);
  const uint32_t count = reader.U32();
  std::vector<std::string> values;
  for (uint32_t i = 0; i < count && reader.ok(); ++i) values.emplace_back(reader.Text());
  if (!reader.AtEnd()) return absl::DataLossError("malformed reply of the store");
  return values;
}

}  // namespace gyre
