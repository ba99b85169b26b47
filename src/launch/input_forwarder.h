// InputForwarder: brings gyrerun's standard input to the host of the rank that reads it, no more at a time than is
// acknowledged. Not thread-safe; never blocks.
#pragma once

#include <functional>
#include <string_view>

#include "launch/agent_protocol.h"
#include "launch/poller.h"

namespace gyre::launch {

class InputForwarder {
 public:
  // Gets each piece; an empty one is the end, after which nothing more comes.
  using Send = std::function<void(std::string_view piece)>;

  InputForwarder(Poller& poller, int fd, Send send) : poller_(poller), fd_(fd), send_(std::move(send)) {}

  void Start();
  void OnReadable();
  void OnTaken(size_t bytes);
  void Stop();  // nobody reads it any more

 private:
  bool ReadOnce();
  void Update();

  Poller& poller_;
  const int fd_;
  const Send send_;
  size_t in_flight_ = 0;
  bool open_ = false;
  bool always_ready_ = false;  // a regular file, which epoll(7) does not take
  bool watched_ = false;
};

}  // namespace gyre::launch
