#include "launch/output_forwarder.h"

#include <unistd.h>

#include <array>
#include <cerrno>

namespace gyre::launch {

void OutputForwarder::Add(int rank, UniqueFd out, UniqueFd err) {
  for (Stream& stream : streams_) {
    if (stream.rank == rank) stream.last = false;
  }
  AddStream(rank, 1, std::move(out));
  AddStream(rank, 2, std::move(err));
}

void OutputForwarder::AddStream(int rank, int number, UniqueFd pipe) {
  const auto index = static_cast<uint32_t>(streams_.size());
  const bool watched = poller_.AddReadable(pipe.get(), {Source::kStream, index}).ok();
  streams_.push_back({rank, number, std::move(pipe), watched});
  ++open_;
}

void OutputForwarder::OnReadable(uint32_t index) {
  if (index < streams_.size() && streams_[index].watched) ReadOnce(streams_[index]);
}

bool OutputForwarder::ReadOnce(Stream& stream) {
  if (!stream.pipe || stalled()) return false;
  std::array<char, kOutputChunk> buffer;
  const ssize_t count = read(stream.pipe.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  const size_t size = count > 0 ? static_cast<size_t>(count) : 0;
  if (size > 0 || stream.last) {
    channel_.Send(size > 0 ? AgentMessage::kOutput : AgentMessage::kOutputEnd,
                  EncodeOutput({stream.rank, stream.number, {buffer.data(), size}}));
  }
  credit_ -= size;
  if (size == 0) {
    if (stream.watched) poller_.Remove(stream.pipe.get());
    stream.watched = false;
    stream.pipe.Reset();
    --open_;
  }
  if (stalled()) Watch();
  return size > 0;
}

void OutputForwarder::OnCredit(size_t bytes) {
  credit_ = std::min(credit_ + bytes, kOutputWindow);
  Watch();
}

void OutputForwarder::Watch() {
  if (watching_ == !stalled()) return;
  watching_ = !stalled();
  for (size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    if (!stream.pipe || stream.watched == watching_) continue;
    if (!watching_) poller_.Remove(stream.pipe.get());
    stream.watched =
        watching_ && poller_.AddReadable(stream.pipe.get(), {Source::kStream, static_cast<uint32_t>(i)}).ok();
  }
}

void OutputForwarder::Close() {
  for (Stream& stream : streams_) {
    while (ReadOnce(stream)) {
    }
    if (!stream.pipe) continue;
    if (stream.watched) poller_.Remove(stream.pipe.get());
    stream.watched = false;
    stream.pipe.Reset();
    --open_;
  }
}

}  // namespace gyre::launch
