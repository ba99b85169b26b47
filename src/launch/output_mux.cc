#include "launch/output_mux.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "launch/now.h"

namespace gyre::launch {

namespace {

constexpr size_t kFull = size_t{256} << 10;  // a sink with more than this waiting takes no more
constexpr size_t kRoomy = size_t{64} << 10;  // and takes more again below this
constexpr size_t kTail = size_t{2} << 10;
constexpr char kClearLine[] = "\r\033[K";
constexpr int kLastStreamReads = 1024;  // 64 MiB: more than pipes hold, so only a live writer gets there

bool SameFile(int a, int b) {
  struct stat x {
  }, y{};
  return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

}  // namespace

OutputMux::OutputMux(Poller& poller, OutputOptions options, int out_fd, int err_fd)
    : poller_(poller), options_(std::move(options)), buffer_(kReadBytes) {
  sinks_.push_back(std::make_unique<Sink>(Sink{OutputSink(out_fd)}));
  // Two queues into one file would tear each other's lines.
  if (!SameFile(out_fd, err_fd)) sinks_.push_back(std::make_unique<Sink>(Sink{OutputSink(err_fd)}));
}

absl::Status OutputMux::Add(int rank, UniqueFd out, UniqueFd err, bool again) {
  RETURN_IF_ERROR(AddStream(rank, "", std::move(out), 1, again));
  return AddStream(rank, "", std::move(err), 2, again);
}

absl::StatusOr<uint32_t> OutputMux::AddRemote(int rank, std::string_view host, bool again) {
  RETURN_IF_ERROR(AddStream(rank, host, {}, 1, again));
  RETURN_IF_ERROR(AddStream(rank, host, {}, 2, again));
  return static_cast<uint32_t>(streams_.size() - 2);
}

// `number`: 1 for standard output, 2 for standard error.
absl::Status OutputMux::AddStream(int rank, std::string_view host, UniqueFd pipe, int number, bool again) {
  const char* name = number == 1 ? "stdout" : "stderr";
  auto stream = std::make_unique<Stream>(
      Stream{.rank = rank,
             .number = number,
             .shown = options_.only.empty() || std::ranges::binary_search(options_.only, rank),
             .pipe = std::move(pipe),
             .file = {},
             .path = {},
             .lines = LineAssembler(),
             .tagger = LineTagger(options_.tag ? RankTag(rank, name, host) : "", options_.timestamp),
             .sink = number == 1 ? 0 : static_cast<uint32_t>(sinks_.size() - 1)});
  RETURN_IF_ERROR(OpenFile(*stream, again));
  streams_.push_back(std::move(stream));
  ++open_streams_;
  Watch(static_cast<uint32_t>(streams_.size() - 1), true);
  return absl::OkStatus();
}

absl::Status OutputMux::OpenFile(Stream& stream, bool again) {
  if (options_.dir.empty()) return absl::OkStatus();
  const int mode = options_.append || again ? O_APPEND : O_TRUNC;
  stream.path = absl::StrCat(options_.dir, "/rank.", stream.rank, stream.number == 1 ? ".out" : ".err");
  stream.file.Reset(open(stream.path.c_str(), O_WRONLY | O_CREAT | mode | O_CLOEXEC, 0666));
  if (stream.file) return absl::OkStatus();
  if (!again) return ErrnoStatus(stream.path);
  Say(absl::StrCat(stream.path, ": ", std::strerror(errno), "; nothing more is written to this file"));
  return absl::OkStatus();
}

void OutputMux::Feed(uint32_t index, std::string_view bytes) {
  if (streams_[index]->open) Take(*streams_[index], bytes);
}

void OutputMux::Finish(uint32_t index) {
  if (streams_[index]->open) Close(*streams_[index]);
}

void OutputMux::OnReadable(uint32_t index) {
  Stream& stream = *streams_[index];
  if (stream.pipe && stream.polled) ReadOnce(stream);
}

bool OutputMux::ReadOnce(Stream& stream) {
  const ssize_t count = read(stream.pipe.get(), buffer_.data(), buffer_.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count <= 0) {
    Close(stream);
    return false;
  }
  Take(stream, std::string_view(buffer_.data(), static_cast<size_t>(count)));
  return true;
}

void OutputMux::Take(Stream& stream, std::string_view bytes) {
  last_output_ = Now();
  stream.tail.append(bytes.substr(bytes.size() - std::min(bytes.size(), kTail)));
  if (stream.tail.size() > 2 * kTail) stream.tail.erase(0, stream.tail.size() - kTail);
  WriteFile(stream, bytes);
  stream.lines.Feed(bytes, [&](std::string_view block) { Write(stream, block); });
}

void OutputMux::Write(Stream& stream, std::string_view block) {
  Sink& sink = *sinks_[stream.sink];
  if (sink.output.error() != 0 || !stream.shown || block.empty()) return;
  stream.tagger.Append(block, options_.timestamp ? TimeText() : "", Queue(sink));
  sink.in_line = sink.output.queue().back() != '\n';
}

std::string& OutputMux::Queue(Sink& sink) {
  std::string& queue = sink.output.queue();
  if (&sink == sinks_.back().get() && !shown_.empty()) {
    queue += kClearLine;
    shown_.clear();
  }
  return queue;
}

// Not while a line waits for its end (a rank's bar of progress, say): it would be torn.
void OutputMux::ShowStatus() {
  Sink& sink = *sinks_.back();
  if (shown_ == status_ || sink.in_line || sink.output.error() != 0) return;
  if (!status_.empty() && sink.output.pending() > 0) return;  // first what waits
  Queue(sink) += status_;
  shown_ = status_;
}

std::vector<std::string> OutputMux::LastLines(int rank, size_t most) const {
  std::vector<std::string> lines;
  for (const int number : {2, 1}) {
    // Of a rank that was started several times, the last is meant.
    const auto newest = std::find_if(streams_.rbegin(), streams_.rend(), [&](const auto& stream) {
      return stream->rank == rank && stream->number == number;
    });
    if (newest == streams_.rend() || !lines.empty()) continue;
    const std::string_view tail = (*newest)->tail;
    const std::string_view all = tail.substr(tail.size() - std::min(tail.size(), kTail));
    lines = absl::StrSplit(ToAbsl(all), absl::ByAnyChar("\r\n"), absl::SkipWhitespace());
  }
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(most));
  return lines;
}

void OutputMux::WriteFile(Stream& stream, std::string_view bytes) {
  while (stream.file && !bytes.empty()) {
    const ssize_t count = write(stream.file.get(), bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno != EINTR) {
      Say(absl::StrCat(stream.path, ": ", std::strerror(errno), "; nothing more is written to this file"));
      stream.file.Reset();
    }
  }
}

void OutputMux::Close(Stream& stream) {
  stream.lines.Finish([&](std::string_view block) { Write(stream, block); });
  if (stream.polled) poller_.Remove(stream.pipe.get());
  stream.polled = stream.open = false;
  stream.pipe.Reset();
  stream.file.Reset();
  --open_streams_;
}

void OutputMux::CloseStreams() {
  for (auto& stream : streams_) {
    for (int i = 0; stream->pipe && i < kLastStreamReads && ReadOnce(*stream); ++i) {
    }
    if (stream->open) Close(*stream);
  }
}

void OutputMux::Say(std::string_view line) {
  Sink& sink = *sinks_.back();
  if (sink.output.error() == 0) absl::StrAppend(&Queue(sink), "gyrerun: ", ToAbsl(line), "\n");
}

void OutputMux::Flush() {
  for (auto& sink : sinks_) sink->output.Flush();
  ShowStatus();
  for (uint32_t i = 0; i < sinks_.size(); ++i) {
    Sink& sink = *sinks_[i];
    sink.output.Flush();
    const size_t waiting = sink.output.pending();
    if (sink.polled != (waiting > 0)) {
      sink.polled = !sink.polled;
      if (!sink.polled) {
        poller_.Remove(sink.output.poll_fd());
      } else if (!poller_.AddWritable(sink.output.poll_fd(), {Source::kSink, i}).ok()) {
        sink.polled = false;  // a kind of file that cannot be waited on never makes us wait either
      }
    }
    sink.full = waiting > (sink.full ? kRoomy : kFull);
  }
  for (uint32_t i = 0; i < streams_.size(); ++i) Watch(i, !sinks_[streams_[i]->sink]->full);
}

void OutputMux::Watch(uint32_t index, bool watch) {
  Stream& stream = *streams_[index];
  if (!stream.pipe || stream.polled == watch) return;
  if (watch) {
    stream.polled = poller_.AddReadable(stream.pipe.get(), {Source::kStream, index}).ok();
  } else {
    poller_.Remove(stream.pipe.get());
    stream.polled = false;
  }
}

size_t OutputMux::pending() const {
  size_t sum = 0;
  for (const auto& sink : sinks_) sum += sink->output.pending();
  return sum;
}

bool OutputMux::full() const {
  return std::ranges::any_of(sinks_, [](const auto& sink) { return sink->full; });
}

int OutputMux::error() const {
  for (const auto& sink : sinks_) {
    if (sink->output.error() != 0) return sink->output.error();
  }
  return 0;
}

}  // namespace gyre::launch
