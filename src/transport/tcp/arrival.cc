#include "transport/tcp/arrival.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/status.h"

namespace gyre::tcp {

absl::StatusOr<std::unique_ptr<Arrival>> Arrival::Create(EventLoop& loop, UniqueFd connection, int rank, uint64_t epoch,
                                                         TimePoint deadline, OnDone on_done) {
  const int fd = connection.get();
  std::unique_ptr<Arrival> arrival(new Arrival(loop, std::move(connection), rank, epoch, std::move(on_done)));
  RETURN_IF_ERROR(loop.Add(fd, EPOLLIN, [arrival = arrival.get()](uint32_t) { arrival->Ready(); }));
  arrival->timer_ = loop.AddTimer(deadline, [arrival = arrival.get()] {
    arrival->Finish(absl::DeadlineExceededError("it did not say in time what its connection is for"));
  });
  return arrival;
}

Arrival::Arrival(EventLoop& loop, UniqueFd connection, int rank, uint64_t epoch, OnDone on_done)
    : loop_(loop), fd_(std::move(connection)), rank_(rank), epoch_(epoch), on_done_(std::move(on_done)) {}

Arrival::~Arrival() {
  loop_.CancelTimer(timer_);
  if (fd_) loop_.Remove(fd_.get());
}

void Arrival::Ready() {
  const ssize_t received = recv(fd_.get(), bytes_.data() + filled_, bytes_.size() - filled_, MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received <= 0) return Finish(absl::UnavailableError("its connection ended"));
  filled_ += static_cast<size_t>(received);
  if (filled_ == bytes_.size()) Finish(Decode());
}

absl::StatusOr<Purpose> Arrival::Decode() const {
  FrameDecoder decoder(kPurposePayload);
  Bytes bytes(bytes_);
  ASSIGN_OR_RETURN(const std::optional<Frame> frame, decoder.Next(bytes));
  if (!frame || frame->header.type != static_cast<uint16_t>(FrameType::kPurpose)) {
    return absl::DataLossError("malformed frame: a connection begins with its purpose");
  }
  RETURN_IF_ERROR(CheckHeader(frame->header, epoch_, 0));
  return DecodePurpose(frame->payload);
}

void Arrival::Finish(absl::StatusOr<Purpose> purpose) {
  loop_.CancelTimer(timer_);
  loop_.Remove(fd_.get());
  const OnDone on_done = std::move(on_done_);  // outlives this object, which the call may destroy
  on_done(std::move(purpose), std::move(fd_));
}

}  // namespace gyre::tcp
