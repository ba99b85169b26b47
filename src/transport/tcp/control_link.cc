#include "transport/tcp/control_link.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/status.h"

namespace gyre::tcp {

namespace {

constexpr size_t kMaxOutput = size_t{1} << 20;  // a peer that lets more than this wait has stopped reading

}  // namespace

absl::StatusOr<std::unique_ptr<ControlLink>> ControlLink::Create(EventLoop& loop, UniqueFd connection, bool connector,
                                                                 uint64_t epoch, OnFrame on_frame, OnEnd on_end) {
  const int fd = connection.get();
  std::unique_ptr<ControlLink> link(
      new ControlLink(loop, std::move(connection), connector, epoch, std::move(on_frame), std::move(on_end)));
  RETURN_IF_ERROR(loop.Add(fd, link->events_, [link = link.get()](uint32_t events) { link->Ready(events); }));
  return link;
}

ControlLink::ControlLink(EventLoop& loop, UniqueFd connection, bool connector, uint64_t epoch, OnFrame on_frame,
                         OnEnd on_end)
    : loop_(loop),
      fd_(std::move(connection)),
      epoch_(epoch),
      on_frame_(std::move(on_frame)),
      on_end_(std::move(on_end)),
      // The purpose was the connecting side's frame 0.
      next_sent_(connector ? 1 : 0),
      next_received_(connector ? 0 : 1) {}

void ControlLink::Stop() {
  if (!fd_) return;
  loop_.Remove(fd_.get());
  fd_.Reset();
}

bool ControlLink::TakeHeard() {
  return std::exchange(heard_, false);
}

void ControlLink::Send(FrameType type, std::string_view payload) {
  if (!fd_ || finishing_ || !broken_.ok()) return;
  output_ += EncodeFrame({.type = static_cast<uint16_t>(type), .epoch = epoch_, .sequence = next_sent_++}, payload);
  if (output_.size() > kMaxOutput) {
    broken_ = absl::ResourceExhaustedError("it does not read what it is told");
    shutdown(fd_.get(), SHUT_RDWR);  // which the loop takes for an event
    return;
  }
  Flush();
}

void ControlLink::SendHeartbeat() {
  if (output_.empty()) Send(FrameType::kHeartbeat);
}

void ControlLink::FinishSending() {
  if (!fd_) return;
  finishing_ = true;
  Flush();
}

void ControlLink::Ready(uint32_t events) {
  if (!broken_.ok()) return End(broken_);
  if ((events & EPOLLOUT) != 0) Flush();
  // A hang-up or an error is what the next read finds, after all that came before it.
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) Receive();
}

void ControlLink::Receive() {
  std::array<std::byte, 8192> buffer;
  const ssize_t received = recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received < 0) return End(absl::UnavailableError(ErrnoStatus("its connection ended").message()));
  if (received == 0) return End(absl::UnavailableError("its connection ended"));
  heard_ = true;
  const absl::Status decoded = Decode(Bytes(buffer).first(static_cast<size_t>(received)));
  if (!decoded.ok()) End(decoded);
}

absl::Status ControlLink::Decode(Bytes bytes) {
  while (fd_ && !bytes.empty()) {
    ASSIGN_OR_RETURN(const std::optional<Frame> frame, decoder_.Next(bytes));
    if (!frame) break;
    RETURN_IF_ERROR(CheckHeader(frame->header, epoch_, next_received_++));
    on_frame_(*frame);
  }
  return absl::OkStatus();
}

void ControlLink::Flush() {
  while (!output_.empty()) {
    const ssize_t sent = send(fd_.get(), output_.data(), output_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      output_.erase(0, static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      // What came before the end is still to be read; the read that finds the end tells.
      output_.clear();
    }
  }
  if (finishing_ && output_.empty()) shutdown(fd_.get(), SHUT_WR);
  const uint32_t wanted = output_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  if (wanted != std::exchange(events_, wanted)) loop_.Modify(fd_.get(), wanted).IgnoreError();
}

void ControlLink::End(const absl::Status& why) {
  if (!fd_) return;
  Stop();
  on_end_(why);
}

}  // namespace gyre::tcp
