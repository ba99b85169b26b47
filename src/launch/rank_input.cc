#include "launch/rank_input.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/status.h"

namespace gyre::launch {

absl::StatusOr<UniqueFd> RankInput::Open() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe2");
  pipe_.Reset(ends[1]);
  sink_ = std::make_unique<OutputSink>(pipe_.get());
  return UniqueFd(ends[0]);
}

void RankInput::Put(std::string_view bytes) {
  put_ += bytes.size();
  if (sink_ != nullptr) sink_->queue().append(bytes);
}

size_t RankInput::Flush(Poller& poller) {
  size_t left = 0;
  if (sink_ != nullptr) {
    sink_->Flush();
    left = sink_->pending();
    if (watched_ != (left > 0)) {
      if (watched_) poller.Remove(sink_->poll_fd());
      watched_ = !watched_ && poller.AddWritable(sink_->poll_fd(), {Source::kInput}).ok();
    }
    if (sink_->error() != 0 || (ended_ && left == 0)) Close(poller);
  }
  const size_t done = put_ - left;
  put_ = left;
  return done;
}

void RankInput::Close(Poller& poller) {
  if (watched_) poller.Remove(sink_->poll_fd());
  watched_ = false;
  sink_.reset();
  pipe_.Reset();
}

}  // namespace gyre::launch
