#include "bootstrap/store_client.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bootstrap/store_protocol.h"
#include "net/acceptor.h"
#include "net/interfaces.h"
#include "net/socket.h"

namespace gyre {

namespace {

constexpr size_t kClientReadBytes = 64 << 10;

uint32_t MillisecondsLeft(TimePoint deadline) {
  const TimePoint now = std::chrono::steady_clock::now();
  if (deadline <= now) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<uint32_t>(std::min<int64_t>(left, INT32_MAX));
}

uint16_t TypeOf(const StoreRequest& request) {
  return static_cast<uint16_t>(request.kind);
}

}  // namespace

StoreClient::StoreClient(UniqueFd fd, std::string name, uint64_t epoch)
    : fd_(std::move(fd)), name_(std::move(name)), epoch_(epoch), decoder_(kMaxStoreReplyBytes) {}

StoreClient::~StoreClient() = default;

absl::StatusOr<std::unique_ptr<StoreClient>> StoreClient::Connect(const Endpoint& store, const HandshakeIdentity& self,
                                                                  int size, const std::string& secret,
                                                                  TimePoint deadline, TimePoint reach, uint64_t life) {
  const std::string name = absl::StrCat("the store at ", ToString(store));
  const auto connect = [&store](TimePoint until) { return ConnectTcp(store, until); };
  ASSIGN_OR_RETURN(Connected connected, ConnectAuthenticated(name, connect, self, secret, std::min(reach, deadline)));
  if (connected.peer.role != Role::kStore) {
    return absl::FailedPreconditionError(absl::StrCat(name, " is no store but ", Describe(connected.peer)));
  }
  auto client = std::unique_ptr<StoreClient>(new StoreClient(std::move(connected.fd), name, self.epoch));
  if (self.role == Role::kRank) {
    const StoreRequest join{.kind = StoreMessage::kJoin,
                            .size = static_cast<uint32_t>(size),
                            .process = static_cast<uint32_t>(getpid()),
                            .life = life};
    RETURN_IF_ERROR(client->Call(TypeOf(join), EncodeRequest(join), deadline).status());
  }
  return client;
}

absl::StatusOr<std::string> StoreClient::LocalAddress() const {
  return LocalAddressOf(fd_.get());
}

absl::Status StoreClient::Set(std::string_view key, std::string_view value, TimePoint deadline) {
  RETURN_IF_ERROR(CheckKey(key));
  RETURN_IF_ERROR(CheckValue(value));
  const StoreRequest request{.kind = StoreMessage::kSet, .key = key, .value = value};
  return Call(TypeOf(request), EncodeRequest(request), deadline).status();
}

absl::StatusOr<std::string> StoreClient::Get(std::string_view key, TimePoint deadline) {
  RETURN_IF_ERROR(CheckKey(key));
  const StoreRequest request{.kind = StoreMessage::kGet, .key = key, .timeout_ms = MillisecondsLeft(deadline)};
  return Call(TypeOf(request), EncodeRequest(request), deadline);
}

absl::StatusOr<int64_t> StoreClient::Add(std::string_view key, int64_t amount, TimePoint deadline) {
  RETURN_IF_ERROR(CheckKey(key));
  const StoreRequest request{.kind = StoreMessage::kAdd, .key = key, .amount = amount};
  ASSIGN_OR_RETURN(const std::string text, Call(TypeOf(request), EncodeRequest(request), deadline));
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return absl::DataLossError(absl::StrCat(name_, ": malformed reply"));
  return value;
}

absl::StatusOr<std::vector<std::string>> StoreClient::Gather(std::string_view name, std::string_view value,
                                                             TimePoint deadline) {
  RETURN_IF_ERROR(CheckKey(name));
  RETURN_IF_ERROR(CheckValue(value));
  const StoreRequest request{
      .kind = StoreMessage::kGather, .key = name, .value = value, .timeout_ms = MillisecondsLeft(deadline)};
  ASSIGN_OR_RETURN(const std::string result, Call(TypeOf(request), EncodeRequest(request), deadline));
  return DecodeValues(result);
}

absl::StatusOr<std::string> StoreClient::Call(uint16_t type, std::string_view payload, TimePoint deadline) {
  RETURN_IF_ERROR(broken_);
  const uint32_t sequence = ++sequence_;
  const std::string request = EncodeFrame({.type = type, .epoch = epoch_, .sequence = sequence}, payload);
  if (const absl::Status sent = SendAll(fd_.get(), AsBytes(request), deadline); !sent.ok()) {
    broken_ = Annotate(sent, name_);  // perhaps in mid-frame
    return broken_;
  }
  for (;;) {
    auto frame = ReceiveFrame(deadline);
    if (!frame.ok()) {
      // A late reply can still be skipped; anything else ends the connection.
      const absl::Status status = Annotate(frame.status(), name_);
      if (!absl::IsDeadlineExceeded(status)) broken_ = status;
      return status;
    }
    if (frame->header.sequence != sequence) continue;  // to a call that had given up
    const auto code = static_cast<absl::StatusCode>(frame->header.flags);
    if (code != absl::StatusCode::kOk) return absl::Status(code, frame->payload);
    return std::move(frame->payload);
  }
}

absl::StatusOr<Frame> StoreClient::ReceiveFrame(TimePoint deadline) {
  for (;;) {
    Bytes bytes = AsBytes(received_);
    ASSIGN_OR_RETURN(std::optional<Frame> frame, decoder_.Next(bytes));
    received_.erase(0, received_.size() - bytes.size());
    if (frame) return *std::move(frame);
    received_.resize(kClientReadBytes);
    const auto got = ReceiveSome(fd_.get(), AsMutableBytes(received_), deadline);
    received_.resize(got.ok() ? *got : 0);
    RETURN_IF_ERROR(got.status());
  }
}

}  // namespace gyre
