#include "runtime/message_link.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "collectives/call.h"

namespace gyre::internal {

namespace {

// A peer that has nothing to say is no error; one that is lost ends the wait.
constexpr std::chrono::milliseconds kForever = std::chrono::milliseconds::max();

// Longer than any list of names; a longer one is a defect, not a message.
constexpr uint32_t kLongestMessage = uint32_t{1} << 30;

TensorView BytesOf(std::string& bytes, size_t from) {
  return {bytes.data() + from, static_cast<int64_t>(bytes.size() - from), DType::kU8};
}

}  // namespace

void MessageLink::Listen() {
  listening_ = true;
  in_rest_ = false;
  receive_ = StartReceive(frame_);
}

Work MessageLink::StartReceive(const TensorView& bytes) {
  return communicator_.Start(
      {.kind = CallKind::kMessage, .out = bytes, .peer = peer_, .peer_may_leave = true, .timeout = kForever});
}

Work MessageLink::StartSend(const TensorView& bytes) {
  return communicator_.Start({.kind = CallKind::kMessage,
                              .in = bytes,
                              .peer = peer_,
                              .send = true,
                              .peer_may_leave = true,
                              .timeout = kForever});
}

void MessageLink::Send(std::string bytes) {
  Outgoing& out = outgoing_.emplace_back();
  out.bytes = std::move(bytes);
  out.frame = {};
  const auto length = static_cast<uint32_t>(out.bytes.size());
  std::memcpy(out.frame.data(), &length, sizeof(length));
  std::memcpy(out.frame.data() + sizeof(length), out.bytes.data(), std::min(out.bytes.size(), kInline));
  out.first = StartSend(out.frame);
  if (out.bytes.size() > kInline) out.second = StartSend(BytesOf(out.bytes, kInline));
}

std::optional<absl::StatusOr<std::string>> MessageLink::Poll() {
  while (!outgoing_.empty() && outgoing_.front().first.Done() && outgoing_.front().second.Done()) outgoing_.pop_front();
  if (!listening_ || !receive_.Done()) return std::nullopt;
  if (absl::Status status = receive_.Wait(); !status.ok()) {
    listening_ = false;
    return status;
  }
  if (!in_rest_) {
    uint32_t length = 0;
    std::memcpy(&length, frame_.data(), sizeof(length));
    if (length > kLongestMessage) {
      listening_ = false;
      return absl::DataLossError("a message about named operations has an impossible length");
    }
    bytes_.assign(length, '\0');
    std::memcpy(bytes_.data(), frame_.data() + sizeof(length), std::min<size_t>(length, kInline));
    if (length > kInline) {
      in_rest_ = true;
      receive_ = StartReceive(BytesOf(bytes_, kInline));
      return std::nullopt;
    }
  }
  listening_ = false;
  return std::move(bytes_);
}

}  // namespace gyre::internal
