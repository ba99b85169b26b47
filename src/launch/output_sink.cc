#include "launch/output_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "absl/strings/str_cat.h"

namespace gyre::launch {

OutputSink::OutputSink(int fd) : fd_(fd) {
  struct stat info {};
  fstat(fd, &info);
  if (S_ISSOCK(info.st_mode)) {
    way_ = Way::kSocket;
  } else if (S_ISFIFO(info.st_mode) || isatty(fd) != 0) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    own_.Reset(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!own_) way_ = Way::kAskFirst;
  }
}

void OutputSink::Flush() {
  while (error_ == 0 && pending() > 0) {
    const ssize_t count = WriteSome(std::string_view(queue_).substr(written_));
    if (count >= 0) {
      written_ += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  if (pending() == 0 || error_ != 0) {
    queue_.clear();
    written_ = 0;
  } else if (written_ > queue_.size() / 2) {
    queue_.erase(0, written_);
    written_ = 0;
  }
}

ssize_t OutputSink::WriteSome(std::string_view bytes) {
  if (way_ == Way::kSocket) return send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (way_ == Way::kAskFirst) {
    pollfd ready{fd_, POLLOUT, 0};
    if (poll(&ready, 1, 0) == 0) {
      errno = EAGAIN;
      return -1;
    }
    bytes = bytes.substr(0, PIPE_BUF);
  }
  return write(poll_fd(), bytes.data(), bytes.size());
}

void Say(absl::string_view line) {
  OutputSink err(2);
  err.queue() = absl::StrCat("gyrerun: ", line, "\n");
  err.Flush();
}

}  // namespace gyre::launch
