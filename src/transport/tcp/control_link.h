// ControlLink: one control connection, on the hub's event loop: frames in both directions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "net/event_loop.h"
#include "net/framing.h"
#include "transport/tcp/control_frames.h"

namespace gyre::tcp {

// All on the loop's thread. Callbacks may stop the link, but must not destroy it. Nothing is called from within the
// methods: what a method cannot send is told by the loop's next turn.
class ControlLink {
 public:
  using OnFrame = std::function<void(const Frame&)>;
  // At most once, the last call. kUnavailable: the connection ended; kDataLoss: what came is no frame of this epoch;
  // kResourceExhausted: the peer does not read.
  using OnEnd = std::function<void(const absl::Status&)>;

  // `connection`: authenticated, non-blocking, its purpose told; `connector`: whether this side told it.
  static absl::StatusOr<std::unique_ptr<ControlLink>> Create(EventLoop& loop, UniqueFd connection, bool connector,
                                                             uint64_t epoch, OnFrame on_frame, OnEnd on_end);
  ~ControlLink() { Stop(); }
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  void Send(FrameType type, std::string_view payload = {});
  void SendHeartbeat();  // but not behind other frames that wait to be sent

  // Nothing is sent after what was; the peer's end comes to on_end as ever.
  void FinishSending();

  // Closes the connection; nothing is called any more. Idempotent.
  void Stop();

  // Whether anything has come since the last call.
  bool TakeHeard();

 private:
  ControlLink(EventLoop& loop, UniqueFd connection, bool connector, uint64_t epoch, OnFrame on_frame, OnEnd on_end);
  void Ready(uint32_t events);
  void Receive();
  absl::Status Decode(Bytes bytes);
  void Flush();
  void End(const absl::Status& why);

  EventLoop& loop_;
  UniqueFd fd_;
  const uint64_t epoch_;
  const OnFrame on_frame_;
  const OnEnd on_end_;
  FrameDecoder decoder_{kMaxControlPayload};
  uint32_t next_sent_;  // sequence numbers
  uint32_t next_received_;
  std::string output_;
  absl::Status broken_;  // what a send found; told by the loop
  uint32_t events_ = EPOLLIN;
  bool finishing_ = false;
  bool heard_ = false;
};

}  // namespace gyre::tcp
