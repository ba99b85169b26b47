// OutputForwarder: brings the output of an agent's ranks to the launcher, no more at a time than that acknowledges.
// Beyond that ranks are not read, and wait in their turn. Not thread-safe; never blocks.
#pragma once

#include <memory>
#include <vector>

#include "base/fd.h"
#include "launch/channel.h"
#include "launch/poller.h"

namespace gyre::launch {

class OutputForwarder {
 public:
  // Both must outlive it.
  OutputForwarder(Poller& poller, Channel& channel) : poller_(poller), channel_(channel) {}

  // The reading ends of a rank's pipes, non-blocking. Of a rank that is started again, only the last ones tell their
  // end.
  void Add(int rank, UniqueFd out, UniqueFd err);

  void OnReadable(uint32_t stream);  // Source::kStream
  void OnCredit(size_t bytes);

  // Takes what is still in the pipes and may be sent; then nothing is open.
  void Close();

  bool open() const { return open_ > 0; }
  bool stalled() const { return credit_ < kOutputChunk; }  // until the launcher acknowledges

 private:
  struct Stream {
    int rank = 0;
    int number = 1;  // 1 output, 2 error
    UniqueFd pipe;
    bool watched = false;
    bool last = true;  // the rank was not started again since
  };

  void AddStream(int rank, int number, UniqueFd pipe);
  bool ReadOnce(Stream& stream);  // false: nothing there now
  void Watch();

  Poller& poller_;
  Channel& channel_;
  std::vector<Stream> streams_;
  size_t credit_ = kOutputWindow;
  int open_ = 0;
  bool watching_ = true;
};

}  // namespace gyre::launch
