// OutputSink: gyrerun's standard output or error, written without ever blocking on a slow reader.
//
// Pipes and terminals are opened a second time for that, because O_NONBLOCK set on the descriptor we were given would
// be seen by everybody who shares it. Not thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/string_view.h"
#include "base/fd.h"

namespace gyre::launch {

class OutputSink {
 public:
  explicit OutputSink(int fd);  // stays the caller's

  // Queues; Flush writes. Dropped once writing has failed.
  std::string& queue() { return queue_; }
  size_t pending() const { return queue_.size() - written_; }

  // Writes what the reader takes now.
  void Flush();

  int error() const { return error_; }                     // the errno of the write that failed, or 0
  int poll_fd() const { return own_ ? own_.get() : fd_; }  // to wait on until more can be written

 private:
  // How a write is kept from blocking: regular files do not; our own descriptor is non-blocking; sockets take a flag;
  // failing all that we ask first, and write no more than a pipe that is ready surely takes.
  enum class Way { kPlain, kSocket, kAskFirst };

  ssize_t WriteSome(std::string_view bytes);

  const int fd_;
  UniqueFd own_;
  Way way_ = Way::kPlain;
  std::string queue_;
  size_t written_ = 0;
  int error_ = 0;
};

// A line of gyrerun's own, to standard error, as far as that takes it now.
void Say(absl::string_view line);

}  // namespace gyre::launch
