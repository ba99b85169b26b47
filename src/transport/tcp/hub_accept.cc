// HubLoop's side of connections that others make.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/bytes.h"
#include "net/framing.h"
#include "net/socket.h"
#include "transport/tcp/hub_loop.h"

namespace gyre::tcp {

namespace {

constexpr size_t kMaxArrivals = 1024;  // of authenticated peers
constexpr Duration kPurposeTimeout = std::chrono::seconds(5);

}  // namespace

absl::Status HubLoop::CheckComer(const HandshakeIdentity& comer) const {
  if (comer.role != Role::kRank || !peers_.contains(comer.rank)) {
    return absl::PermissionDeniedError(absl::StrCat(Describe(comer), " has no business here"));
  }
  if (comer.rank > self_.rank) {
    return absl::PermissionDeniedError(absl::StrCat(Describe(comer), " is to wait until it is connected to"));
  }
  return absl::OkStatus();
}

void HubLoop::Accepted(AcceptedPeer accepted) {
  absl::Status usable = CheckComer(accepted.peer);
  if (usable.ok()) usable = SetNonBlocking(accepted.fd.get(), true);
  if (!usable.ok()) return logger_.Warn(absl::StrCat("connection refused: ", usable.ToString()));
  if (arrivals_.size() >= kMaxArrivals) DropArrival(arrivals_.begin());
  const int rank = accepted.peer.rank;
  const auto place = arrivals_.insert(arrivals_.end(), nullptr);
  auto arrival = Arrival::Create(*loop_, std::move(accepted.fd), rank, self_.epoch,
                                 std::chrono::steady_clock::now() + kPurposeTimeout,
                                 [this, place](absl::StatusOr<Purpose> purpose, UniqueFd fd) {
                                   Arrived(place, std::move(purpose), std::move(fd));
                                 });
  if (!arrival.ok()) {
    arrivals_.erase(place);
    return logger_.Warn(absl::StrCat("connection dropped: ", arrival.status().ToString()));
  }
  *place = *std::move(arrival);
  board_.SetArriving(rank, ++peers_.at(rank).arriving);
}

void HubLoop::DropArrival(Arrivals::iterator arrival) {
  const int rank = (*arrival)->rank();
  arrivals_.erase(arrival);
  board_.SetArriving(rank, --peers_.at(rank).arriving);
}

void HubLoop::Arrived(Arrivals::iterator arrival, absl::StatusOr<Purpose> purpose, UniqueFd fd) {
  const int rank = (*arrival)->rank();
  if (purpose.ok() && purpose->control) {
    AcceptControl(rank, std::move(fd));
  } else if (purpose.ok()) {
    DeliverData(rank, purpose->channel, std::move(fd));
  } else if (absl::IsDataLoss(purpose.status())) {
    Lose(rank, purpose.status().message());
  } else {
    logger_.Debug(
        absl::StrCat("a connection of ", board_.NameOf(rank), " came to nothing: ", purpose.status().ToString()));
  }
  // Last, so that whoever asks meanwhile finds it either arriving or arrived.
  DropArrival(arrival);
  if (board_.FateOf(rank) == Fate::kLeft) Changed();
}

void HubLoop::AcceptControl(int rank, UniqueFd fd) {
  if (IsHere(rank) && peers_.at(rank).link == nullptr) return Attach(rank, std::move(fd), /*connector=*/false);
  if (board_.FateOf(rank) == Fate::kHere) {
    return logger_.Warn(absl::StrCat(board_.NameOf(rank), " made a second control connection, which was closed"));
  }
  // Back from the dead, or so it thinks: it is told.
  const std::string payload = Encode(Loss{rank, self_.rank, board_.LastProblem(rank)});
  const FrameHeader header{.type = static_cast<uint16_t>(FrameType::kLoss), .epoch = self_.epoch};
  SendAll(fd.get(), AsBytes(EncodeFrame(header, payload)), TimePoint{}).IgnoreError();
}

// Once, and again whenever there were twice as many: a flood of strangers does not flood the log.
void HubLoop::ReportStrangers() {
  const AcceptorCounts& counts = listener_->counts();
  const int64_t strangers = counts.refused + counts.timed_out;
  if (strangers > 0 && strangers >= 2 * strangers_reported_) {
    strangers_reported_ = strangers;
    logger_.Warn(absl::StrCat(
        strangers, " connections were refused or timed out, the last refusal: ", counts.last_refusal.ToString()));
  }
  if (counts.pauses > 0 && !std::exchange(trouble_reported_, true)) {
    logger_.Error(absl::StrCat("connections have to wait: ", counts.last_trouble.ToString()));
  }
}

}  // namespace gyre::tcp
