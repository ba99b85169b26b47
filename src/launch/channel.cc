#include "launch/channel.h"

#include "base/status.h"

namespace gyre::launch {

void Channel::Send(AgentMessage type, std::string_view payload) {
  if (out_.error() == 0) out_.queue() += EncodeFrame({.type = static_cast<uint16_t>(type)}, payload);
}

void Channel::Flush(Poller& poller, PollKey key) {
  out_.Flush();
  const bool waiting = out_.pending() > 0;
  if (waiting == watched_) return;
  if (!waiting) return Unwatch(poller);
  watched_ = poller.AddWritable(out_.poll_fd(), key).ok();
}

void Channel::Unwatch(Poller& poller) {
  if (watched_) poller.Remove(out_.poll_fd());
  watched_ = false;
}

absl::Status Channel::Feed(std::string_view bytes, const OnFrame& on_frame) {
  for (Bytes left = AsBytes(bytes); !left.empty();) {
    ASSIGN_OR_RETURN(const std::optional<Frame> frame, decoder_.Next(left));
    if (frame) RETURN_IF_ERROR(on_frame(*frame));
  }
  return absl::OkStatus();
}

}  // namespace gyre::launch
