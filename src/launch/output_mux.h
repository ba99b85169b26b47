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
#include "base/fd.h"
#include "launch/line_assembler.h"
#include "launch/line_tagger.h"
#include "launch/output_sink.h"
#include "launch/poller.h"

namespace gyre::launch {

struct OutputOptions {
  bool tag = false;
  bool timestamp = false;
  std::string dir;      // empty: no files
  bool append = false;  // to the files: they are a restarted job's
};

class OutputMux {
 public:
  OutputMux(Poller& poller, OutputOptions options, int out_fd = 1, int err_fd = 2);

  // The reading ends of a rank's pipes, non-blocking. `again`: its files go on. Fails if they cannot be made.
  absl::Status Add(int rank, UniqueFd out, UniqueFd err, bool again = false);

  // Likewise for a rank on another host, whose output comes in pieces: returns the number of its standard output;
  // that of its standard error is one more. `host` goes into the tag.
  absl::StatusOr<uint32_t> AddRemote(int rank, std::string_view host);
  void Feed(uint32_t stream, std::string_view bytes);
  void Finish(uint32_t stream);

  void OnReadable(uint32_t stream);

  // A line of gyrerun's own, to standard error.
  void Say(std::string_view line);

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
    UniqueFd pipe;  // empty for a remote rank
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
  };

  absl::Status AddStream(int rank, std::string_view host, UniqueFd pipe, int number, bool again = false);
  bool ReadOnce(Stream& stream);  // false: nothing there now
  void Take(Stream& stream, std::string_view bytes);
  void Write(Stream& stream, std::string_view block);
  void WriteFile(Stream& stream, std::string_view bytes);
  void Close(Stream& stream);
  void Watch(uint32_t index, bool watch);

  Poller& poller_;
  const OutputOptions options_;
  std::vector<std::unique_ptr<Sink>> sinks_;  // standard output and error; one if both are the same file
  std::vector<std::unique_ptr<Stream>> streams_;
  int open_streams_ = 0;
  std::vector<char> buffer_;
};

}  // namespace gyre::launch
