// OutputMux: brings the output of all ranks to gyrerun's own, line by line, and to files if asked.
//
// Back-pressure: while more than 256 KiB wait for a slow reader, the ranks that write to it are not read, and wait in
// their turn. Not thread-safe; never blocks but on regular files.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "launch/line_assembler.h"
#include "launch/line_tagger.h"
#include "launch/output_sink.h"
#include "launch/poller.h"

namespace gyre::launch {

struct OutputOptions {
  bool tag = false;
  bool timestamp = false;
  std::string dir;             // empty: no files
  bool append = false;         // to the files: they are a restarted job's
  std::vector<int> only = {};  // ascending: of no other ranks is anything passed on; empty: of all
};

class OutputMux {
 public:
  OutputMux(Poller& poller, OutputOptions options, int out_fd = 1, int err_fd = 2);

  // The reading ends of a rank's pipes, non-blocking. Fails if its files cannot be made. `again`: they go on; where one
  // cannot be opened any more, that is said, and the rank's output goes on without it.
  absl::Status Add(int rank, UniqueFd out, UniqueFd err, bool again = false);

  // Likewise for a rank on another host, whose output comes in pieces: returns the number of its standard output;
  // that of its standard error is one more. `host` goes into the tag.
  absl::StatusOr<uint32_t> AddRemote(int rank, std::string_view host, bool again = false);
  void Feed(uint32_t stream, std::string_view bytes);
  void Finish(uint32_t stream);

  void OnReadable(uint32_t stream);

  // A line of gyrerun's own, to standard error.
  void Say(std::string_view line);

  // The last line of a terminal that standard error must then be: it stays below all else. Empty: none.
  void SetStatusLine(std::string line) { status_ = std::move(line); }

  // The last lines of the rank's standard error, or else of its output: `most` of them, and 2 KiB.
  std::vector<std::string> LastLines(int rank, size_t most) const;
  TimePoint last_output() const { return last_output_; }  // of any rank

  // Writes what can be written, and sees to what is to be waited for. Call it after each round of events.
  void Flush();

  // Takes what is still in the pipes (a bounded amount each) and hands out unfinished lines; then nothing is open.
  void CloseStreams();

  int open_streams() const { return open_streams_; }
  size_t pending() const;
  bool full() const;  // more waits for a reader than should: bring no more
  int error() const;  // errno of a failed write to standard output or error, or 0

 private:
  struct Stream {
    int rank = 0;
    int number = 1;  // 1 output, 2 error
    bool shown = true;
    std::string tail{};  // its last bytes
    UniqueFd pipe;       // empty for a remote rank
    UniqueFd file;
    std::string path;  // of the file
    LineAssembler lines;
    LineTagger tagger;
    uint32_t sink;
    bool open = true;
    bool polled = false;
  };
  struct Sink {
    OutputSink output;
    bool polled = false;
    bool full = false;
    bool in_line = false;  // what was written last is no whole line
  };

  absl::Status AddStream(int rank, std::string_view host, UniqueFd pipe, int number, bool again = false);
  absl::Status OpenFile(Stream& stream, bool again);
  bool ReadOnce(Stream& stream);  // false: nothing there now
  void Take(Stream& stream, std::string_view bytes);
  void Write(Stream& stream, std::string_view block);
  std::string& Queue(Sink& sink);  // to append to
  void ShowStatus();
  void WriteFile(Stream& stream, std::string_view bytes);
  void Close(Stream& stream);
  void Watch(uint32_t index, bool watch);

  Poller& poller_;
  const OutputOptions options_;
  std::vector<std::unique_ptr<Sink>> sinks_;  // standard output and error; one if both are the same file
  std::vector<std::unique_ptr<Stream>> streams_;
  int open_streams_ = 0;
  std::vector<char> buffer_;
  TimePoint last_output_{};
  std::string status_;  // what is to be shown
  std::string shown_;   // what is, or will be once the queue is written
};

}  // namespace gyre::launch
