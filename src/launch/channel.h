// Channel: one end of the frames between launcher and agent, over descriptors that may be pipes or sockets. Never
// blocks. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "launch/agent_protocol.h"
#include "launch/output_sink.h"
#include "launch/poller.h"
#include "net/framing.h"

namespace gyre::launch {

class Channel {
 public:
  using OnFrame = std::function<absl::Status(const Frame& frame)>;

  // `out_fd` stays the caller's. `max_payload`: of frames that come.
  Channel(int out_fd, uint32_t max_payload) : out_(out_fd), decoder_(max_payload) {}

  // Queues; Flush sends.
  void Send(AgentMessage type, std::string_view payload = {});
  void SendRaw(std::string_view bytes) { out_.queue().append(bytes); }

  // Sends what goes now, and waits for the rest with `poller`, under `key`.
  void Flush(Poller& poller, PollKey key);
  // Waits no more.
  void Unwatch(Poller& poller);

  size_t pending() const { return out_.pending(); }
  int error() const { return out_.error(); }  // errno of a failed write, or 0

  // Takes bytes that have arrived and hands out the frames they complete. kDataLoss: they are no frames. An error of
  // `on_frame` ends it, too.
  absl::Status Feed(std::string_view bytes, const OnFrame& on_frame);

 private:
  OutputSink out_;
  FrameDecoder decoder_;
  bool watched_ = false;
};

}  // namespace gyre::launch
